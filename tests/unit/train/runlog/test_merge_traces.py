"""Traces of machines whose clocks are seconds apart, and drift, as one picture."""

import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from console.fetch import trace_lines
from train.runlog import merge_traces
from train.runlog.trace import EXCHANGE, FIGURES, STEP, Event, read_trace, slim, write_trace

NAMES = ["head", "worker-1", "worker-2"]
BASE_NS = 1_790_000_000_000_000_000
AHEAD_S = {"head": 0.0, "worker-1": 3.0, "worker-2": -3.0}
DRIFT = {"head": 0.0, "worker-1": 6e-5, "worker-2": -1e-4}
STEPS, STEP_S = range(20, 24), 25.0


def span(name: str, begin_s: float, end_s: float, cat: str = "user_annotation", tid: Any = 7) -> Event:
    times = {"ts": 1e6 * begin_s, "dur": 1e6 * (end_s - begin_s)}
    return {"ph": "X", "name": name, "cat": cat, "pid": 4000, "tid": tid, **times}


def real_spans(name: str, exchange: str = EXCHANGE) -> list[Event]:
    """Four long steps: each exchange ends for all within some milliseconds, one time in ten much later."""
    chance, found = random.Random(name), []
    kind = "kernel" if exchange.startswith("nccl") else "user_annotation"
    for number, step in enumerate(STEPS):
        at = STEP_S * number
        computed = at + {"head": 15, "worker-1": 20, "worker-2": 8}[name]
        delays = [chance.uniform(0, 0.003) + (chance.random() < 0.1) * 0.4 for _ in range(2)]
        found += [
            span(f"{STEP}{step}", at, at + 24),
            span("aten::mm", at + 1, computed, "cpu_op"),
            span("aten::empty", at + 1, at + 1 + 1e-6, "cpu_op"),
            span(exchange, computed, at + 22 + delays[0], kind),
            span(FIGURES, at + 22.5, at + 23 + delays[1]),
        ]
    return found


def write_made(folder: Path, name: str, spans: list[Event], steps: range = STEPS, names: list[str] = NAMES) -> None:
    """By the machine's own clock, as torch would write it."""
    seen = folder / "seen.json"
    clock = [
        {**event, "ts": event["ts"] * (1 + DRIFT[name]), "dur": event["dur"] * (1 + DRIFT[name])} for event in spans
    ]
    whole = {"schemaVersion": 1, "baseTimeNanoseconds": BASE_NS + int(1e9 * AHEAD_S[name]), "traceEvents": clock}
    seen.write_text(json.dumps(whole, indent=1))
    facts = {"run": "qa", "process": name, "processes": names, "steps": [steps.start, steps.stop - 1]}
    write_trace(folder / "nodes" / name / "trace-0.json.gz", seen, facts)


def spans_of(trace: Event, pid: int) -> list[Event]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X" and event["pid"] == pid]


@pytest.mark.parametrize("exchange", [EXCHANGE, "gloo:all_reduce", "ncclDevKernel_AllReduce_Sum_f32"])
def test_parts_of_a_step_lie_within_5_ms_of_where_they_were(exchange, tmp_path):
    real = {name: real_spans(name, exchange) for name in NAMES}
    for name in NAMES:
        write_made(tmp_path, name, real[name])
    merged = merge_traces.merge(tmp_path)
    assert merged is not None and merged.bytes == merged.file.stat().st_size
    trace = read_trace(merged.file)
    for pid, name in enumerate(NAMES):
        shown = [event["ts"] / 1e6 for event in spans_of(trace, pid)]
        there = [event["ts"] / 1e6 for event in real[name] if event["name"] != "aten::empty"]
        assert max(abs(a - b) for a, b in zip(shown, sorted(there), strict=True)) < 0.005, name
    machines = trace["metadata"]["motley"]["machines"]
    assert machines["worker-1"]["shift_ms"] == pytest.approx(-3000, abs=10)
    assert machines["worker-1"]["drift_ppm"] == pytest.approx(-60, abs=20)
    assert merged.lines[0] == "steps 20-23 of head, worker-1, worker-2"
    assert merged.lines[1].startswith("clocks aligned within ") and merged.lines[1].endswith(" ms by 8 exchanges")
    assert float(merged.lines[1].split()[3]) < 3


def test_each_machine_has_its_rows_with_the_gpus_below(tmp_path):
    names = ["head"]
    kernel = {**span("gemm", 2.0, 3.0, "kernel", tid=9), "pid": 1}
    write_made(tmp_path, "head", [*real_spans("head"), kernel, span("read", 1.0, 2.0, tid=8)], names=names)
    merged = merge_traces.merge(tmp_path)
    assert merged is not None and merged.lines[1] == "one process: there are no clocks to align"
    trace = read_trace(merged.file)
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    assert list(rows.values()) == ["steps", "thread 8", "GPU 1, stream 9"]
    assert {e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"} == {"head"}
    assert next(e["tid"] for e in spans_of(trace, 0) if e["name"] == "gemm") == 2


def test_only_one_recording_is_shown_and_who_lacks_it_is_named(tmp_path):
    assert merge_traces.merge(tmp_path) is None and trace_lines(tmp_path) == []
    for name in NAMES[:2]:
        write_made(tmp_path, name, real_spans(name))
    earlier = [{**event, "ts": event["ts"] - 1e9} for event in real_spans("worker-2")]
    write_made(tmp_path, "worker-2", earlier, range(10, 14))
    said = trace_lines(tmp_path)
    assert said[0].startswith(f"  trace     {tmp_path}/trace.json.gz  0.0 MB · steps 20-23 of head, worker-1")
    assert said[2] == "            without worker-2: no trace of these steps"
    assert "ui.perfetto.dev" in said[3]


def test_a_machine_that_shares_no_exchange_keeps_its_clock_and_that_is_said(tmp_path):
    write_made(tmp_path, "head", real_spans("head"), names=NAMES[:2])
    alone = [event for event in real_spans("worker-1") if event["name"] not in (EXCHANGE, FIGURES)]
    write_made(tmp_path, "worker-1", alone, names=NAMES[:2])
    merged = merge_traces.merge(tmp_path)
    assert merged is not None
    assert merged.lines[1] == "the clock of worker-1 is as it was: no exchange with head was recorded"


def test_of_too_many_events_the_longest_stay_and_every_label(monkeypatch):
    monkeypatch.setattr("train.runlog.trace.MOST_EVENTS", 5)
    every = [span("aten::mm", n, n + 0.001 * n, "cpu_op") for n in range(1, 100)]
    kept, _ = slim([*every, span(f"{STEP}1", 0, 100), span(FIGURES, 50, 50)])
    assert [event["name"] for event in kept] == [f"{STEP}1", FIGURES, "aten::mm", "aten::mm", "aten::mm"]
    assert [event["ts"] / 1e6 for event in kept[2:]] == [97, 98, 99]


@pytest.mark.parametrize(
    "damage", ["torn", "empty", "no gzip", "no trace", "a list", "an odd event", "an odd process", "odd steps"]
)
def test_a_trace_that_cannot_be_read_is_left_out_and_named(tmp_path, damage):
    for name in NAMES:
        write_made(tmp_path, name, real_spans(name))
    file = tmp_path / "nodes" / "worker-1" / "trace-0.json.gz"
    whole = file.read_bytes()
    trace = read_trace(file)
    about = trace["motley"]
    changed = {
        "torn": whole[:-20],
        "empty": b"",
        "no gzip": b"{}" + whole,
        "no trace": gzip.compress(b"{}"),
        "a list": gzip.compress(b"[[1, 2]]"),
        "an odd event": gzip.compress(json.dumps(trace | {"traceEvents": [{"ph": "X", "ts": "soon"}]}).encode()),
        "an odd process": gzip.compress(json.dumps(trace | {"motley": about | {"process": "x"}}).encode()),
        "odd steps": gzip.compress(json.dumps(trace | {"motley": about | {"steps": ["two", 3]}}).encode()),
    }
    file.write_bytes(changed[damage])
    said = trace_lines(tmp_path)
    assert "steps 20-23 of head, worker-2" in said[0]
    assert f"            {file} cannot be read, and is left out" in said
    file.write_bytes(whole)
    assert "steps 20-23 of head, worker-1, worker-2" in trace_lines(tmp_path)[0]


def test_of_traces_that_all_cannot_be_read_a_fetch_has_none(tmp_path):
    write_made(tmp_path, "head", real_spans("head"))
    file = tmp_path / "nodes" / "head" / "trace-0.json.gz"
    file.write_bytes(file.read_bytes()[:-20])
    assert trace_lines(tmp_path) == [f"  trace     {file} cannot be read, and is left out"]
