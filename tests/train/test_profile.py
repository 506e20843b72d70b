"""`profile: 4-13`: what three processes with other clocks recorded is one picture, and it changes nothing else."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.train import cluster
from train.__main__ import main
from train.engine.profiler import Profile
from train.runlog import merge_traces
from train.runlog.trace import STEP, read_trace

FIRST, LAST, AHEAD_S = 4, 13, 3
OPTIONS = {"model": "tiny", "max_steps": 15, "rows_per_step": 8, "lora_r": 8, "save_every": 2}
TOLERANCE = 1e-4
BUSY_S = 0.05
"""Where processes share cores, an exchange does not end for all at once; tests/unit/train/runlog/test_merge_traces.py
has clocks alone, and 5 ms."""


@pytest.fixture(scope="module")
def options(data) -> dict:
    return OPTIONS | {"dataset": data}


@pytest.fixture(scope="module")
def plain(options, tmp_path_factory) -> cluster.Cluster:
    """By one process that nobody looks at."""
    return cluster.train(tmp_path_factory.mktemp("plain"), options)


def trace_of(run: cluster.Cluster, rank: int) -> Path:
    return run.log(rank).with_name("trace-0.json.gz")


@pytest.mark.parametrize("sync", ["flat", "ddp"])
def test_clocks_that_are_seconds_apart_are_laid_over_one_another(sync, options, plain, tmp_path, capsys):
    asked = options | {"sync": sync, "shares": "5,2,1", "profile": f"{FIRST}-{LAST}"}
    run = cluster.train(tmp_path, asked, 3, changed=f"other_clocks={AHEAD_S}")
    assert run.losses() == pytest.approx(plain.losses(), rel=TOLERANCE), "to look changes nothing"
    assert main(["trace", str(tmp_path), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    merged = read_trace(Path(told["file"]))
    assert merged["metadata"]["motley"]["steps"] == [FIRST, LAST]

    seen = [read_trace(trace_of(run, rank)) for rank in range(3)]
    real = [[merge_traces.second(own, e["ts"]) - AHEAD_S * rank for e in spans(own)] for rank, own in enumerate(seen)]
    shown = [[e["ts"] / 1e6 for e in spans(merged) if e["pid"] == rank] for rank in range(3)]
    zero = min(shown[0]) - min(real[0])
    for rank in range(3):
        wrong_by = max(abs(a - b - zero) for a, b in zip(shown[rank], real[rank], strict=True))
        assert wrong_by < BUSY_S, (rank, wrong_by, told["lines"])
        named = [e["name"] for e in spans(merged) if e["pid"] == rank and e["name"].startswith(STEP)]
        assert named == [f"{STEP}{step}" for step in range(FIRST, LAST + 1)]
    titles = {e["args"]["name"] for e in merged["traceEvents"] if e["name"] == "process_name"}
    assert titles == {"node-0", "node-1", "node-2"}
    assert "clocks aligned within" in told["lines"][1] and told["bytes"] < 2_000_000


def test_a_run_that_goes_on_records_what_is_left_and_says_so(options, plain, tmp_path):
    """Recorded before it was killed, and after it: the setting is no part of what the run is."""
    options = options | {"shares": "5,2", "sync": "flat"}
    run = cluster.Cluster(tmp_path, options | {"profile": "2-3"}, 2, changed="rests=6")
    run.reaches(6)
    run.stop()
    assert read_trace(trace_of(run, 1))["motley"]["steps"] == [2, 3]
    assert not run.events(kind="done") and not run.events(kind="warning")
    assert [event["first"] for event in run.events(kind="profile")] == [2]

    run = cluster.train(tmp_path, options | {"profile": "3-12"}, 2)
    began = run.events(kind="start")[-1]["step"]
    assert began >= 4
    assert [event["message"] for event in run.events(kind="warning")] == [
        f"profile 3-12: {began + 1}-12 alone; this run is at step {began} of 15"
    ]
    assert merge_traces.merge(tmp_path).lines[0] == f"steps {began + 1}-12 of node-0, node-1"
    assert run.losses() == pytest.approx(plain.losses(), rel=TOLERANCE)


def test_a_disk_without_room_for_the_trace_costs_the_trace(options, tmp_path):
    own = options | {"shares": "1", "max_steps": 3, "profile": "2"}
    run = cluster.train(tmp_path, own, changed="no_room_for_a_trace")
    assert "node-0: steps 2 could not be recorded: OSError" in run.events(kind="warning")[0]["message"]
    assert len(run.losses()) == 3 and not [*run.log().parent.glob("*trace*")]


def spans(trace) -> list[dict]:
    return [event for event in trace["traceEvents"] if event["ph"] == "X"]


def watched(folder: Path, said: list[str], step: int = 0) -> SimpleNamespace:
    """A run of which nothing is asked but to be recorded."""
    return SimpleNamespace(
        config=SimpleNamespace(log_folder=folder, profile="4-13", run="run"),
        world=SimpleNamespace(local_rank=0, rank=0, node="a"),
        workers=SimpleNamespace(names=["a"]),
        reporter=SimpleNamespace(
            warn=lambda _, message: said.append(message), say=said.append, write=lambda *_, **__: None
        ),
        device="cpu",
        step=step,
        total_steps=30,
    )


@pytest.mark.parametrize(("last", "said"), [(3, "recorded, this run ends with step 3"), (5, "steps 4-5 recorded")])
def test_a_run_that_ends_early_says_what_it_could_not_record(last, said, tmp_path):
    messages: list[str] = []
    profile = Profile(run := watched(tmp_path, messages))
    for step in range(1, last + 1):
        profile.begin(step)
        run.step = step
        profile.end(step)
    profile.conclude(last)
    assert len(messages) == 1 and said in messages[0]
    if last > 3:
        assert read_trace(tmp_path / "trace-0.json.gz")["motley"]["steps"] == [4, 5]


def test_a_recording_that_is_torn_is_one_that_is_missing(tmp_path):
    warnings: list[str] = []
    (tmp_path / "trace-0.json.gz").write_bytes(b"\x1f\x8b torn")
    assert not Profile(watched(tmp_path, warnings, step=20)).steps and len(warnings) == 1
