"""The traces of all processes as one picture: trace.json.gz, for ui.perfetto.dev or chrome://tracing.

    python -m train trace FOLDER…      of a run whose files lie there; ./motley fetch does it by itself

Every process wrote its own by its own clock. No exchange ends before all have sent, and all learn of its end at about
the same moment: its ends are laid over one another. A clock's shift is the median of what its ends lack to those of the
first process, so that a few late ones do not count; its drift is the median slope of these differences.
"""

from __future__ import annotations

import argparse
import gzip
import json
import zlib
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

from train.errors import BadInput
from train.files import write_atomic
from train.runlog.paths import TRACE, TRACES
from train.runlog.trace import EXCHANGE, FIGURES, STEP, Event, read_trace, row_names

ON_GPU, ON_CPU = "nccl", "gloo:all_reduce"
"""What torch itself records of an exchange: there it ends, our label only where the program goes on."""
MOST_DRIFT = 2e-4
"""Seconds a second: an ordinary clock stays below; more is noise over a short time."""
MOST_SLOPES = 200
"""Exchanges that the drift is taken from: their number of pairs is its square."""

Ends = dict[tuple[int, str, int], float]
"""Step, kind and number in the step → when this exchange ended, in seconds of the own clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Clock:
    """Turns a process's clock into that of the first one."""

    shift_s: float = 0.0
    drift: float = 0.0
    middle_s: float = 0.0
    errors_s: tuple[float, ...] = ()
    """What is left between the ends of the same exchange."""

    def seconds(self, own_s: float) -> float:
        return own_s + self.shift_s + self.drift * (own_s - self.middle_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Merged:
    file: Path
    bytes: int
    lines: list[str]
    """What a person should know of it."""


def merge(*folders: Path) -> Merged | None:
    """Merges all traces below the folders into one in the first; None where there is none."""
    files = [file for folder in folders for file in sorted(folder.rglob(TRACES))]
    traces = {file: trace for file in files if (trace := usable(file))}
    left_out = [f"{file} cannot be read, and is left out" for file in files if file not in traces]
    if files and not traces:
        raise BadInput("\n".join(left_out))
    return write_merged(folders[0] / TRACE, newest([*traces.values()]), left_out) if traces else None


def usable(file: Path) -> Event | None:
    """The trace; None where the disk or the node has damaged it: what merging asks of it is asked here once."""
    try:
        trace = read_trace(file)
        newest([trace])
        collective_ends(trace)
        moved(0, trace, Clock())
        _first, _last = map(int, trace["motley"]["steps"])
        return trace
    except (OSError, EOFError, zlib.error, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None


def newest(traces: list[Event]) -> list[Event]:
    """The traces of the last recording, in the order of its processes: a node may have missed it, and still have the
    one before."""
    recordings: dict[str, dict[str, Event]] = defaultdict(dict)
    for trace in traces:
        facts = trace["motley"]
        recordings[json.dumps([facts["run"], facts["steps"], facts["processes"]])][facts["process"]] = trace
    if not recordings:
        return []
    last = max(recordings.values(), key=lambda by_process: max(map(began_s, by_process.values())))
    return sorted(last.values(), key=lambda trace: trace["motley"]["processes"].index(trace["motley"]["process"]))


def began_s(trace: Event) -> float:
    return min((second(trace, event["ts"]) for event in trace["traceEvents"] if event["ph"] == "X"), default=0.0)


def second(trace: Event, ts: float) -> float:
    """Since 1970, by the clock of who wrote it."""
    return float(trace["base_ns"]) / 1e9 + ts / 1e6


def write_merged(file: Path, traces: list[Event], left_out: list[str]) -> Merged:
    ends = [collective_ends(trace) for trace in traces]
    clocks = [Clock(), *(clock_of(own, ends[0]) for own in ends[1:])]
    names = [trace["motley"]["process"] for trace in traces]
    facts = traces[0]["motley"]
    events = [event for pid, pair in enumerate(zip(traces, clocks, strict=True)) for event in moved(pid, *pair)]
    zero = min((event["ts"] for event in events if event["ph"] == "X"), default=0.0)
    for event in events:
        if event["ph"] == "X":
            event["ts"] = round(1e6 * (event["ts"] - zero), 3)
    absent = [name for name in facts["processes"] if name not in names]
    without = [f"without {', '.join(absent)}: no trace of these steps"] if absent else []
    notes = [aligned(names, clocks), *without, *left_out]
    about = {
        "run": facts["run"],
        "steps": facts["steps"],
        "clocks": notes[0],
        "machines": {name: clock_facts(clock) for name, clock in zip(names, clocks, strict=True)},
        "without": absent,
    }
    whole = {"traceEvents": events, "displayTimeUnit": "ms", "metadata": {"motley": about}}
    data = gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), compresslevel=6)
    write_atomic(file, data)
    first, last = facts["steps"]
    return Merged(file=file, bytes=len(data), lines=[f"steps {first}-{last} of {', '.join(names)}", *notes])


def collective_ends(trace: Event) -> Ends:
    every = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    steps = sorted((event["ts"], int(event["name"][len(STEP) :])) for event in every if event["name"].startswith(STEP))
    kinds = {kind_of(event) for event in every}
    exchange = next((kind for kind in (ON_GPU, ON_CPU) if kind in kinds), EXCHANGE)
    ends: Ends = {}
    counts: dict[tuple[int, str], int] = defaultdict(int)
    for event in sorted(every, key=lambda event: float(event["ts"])):
        kind = kind_of(event)
        at = bisect_right(steps, (event["ts"], float("inf"))) - 1
        if at < 0 or kind not in (exchange, FIGURES):
            continue
        key = (steps[at][1], kind)
        ends[(*key, counts[key])] = second(trace, event["ts"] + event["dur"])
        counts[key] += 1
    return ends


def kind_of(event: Event) -> str:
    return ON_GPU if event["cat"] == "kernel" and event["name"].startswith(ON_GPU) else str(event["name"])


def clock_of(own: Ends, first: Ends) -> Clock:
    pairs = sorted((own[key], first[key] - own[key]) for key in own.keys() & first.keys())
    if not pairs:
        return Clock()
    sample = pairs[:: 1 + len(pairs) // MOST_SLOPES]
    slopes = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in combinations(sample, 2) if b[0] > a[0]]
    drift = max(-MOST_DRIFT, min(MOST_DRIFT, median(slopes))) if slopes else 0.0
    middle = median(at for at, _ in pairs)
    shift = median(by - drift * (at - middle) for at, by in pairs)
    errors = tuple(abs(by - drift * (at - middle) - shift) for at, by in pairs)
    return Clock(shift_s=shift, drift=drift, middle_s=middle, errors_s=errors)


def aligned(names: list[str], clocks: list[Clock]) -> str:
    if len(names) == 1:
        return "one process: there are no clocks to align"
    if alone := [name for name, clock in zip(names[1:], clocks[1:], strict=True) if not clock.errors_s]:
        return f"the clock of {', '.join(alone)} is as it was: no exchange with {names[0]} was recorded"
    count = min(len(clock.errors_s) for clock in clocks[1:])
    within = max(median(clock.errors_s) for clock in clocks[1:])
    return f"clocks aligned within {1000 * within:.1f} ms by {count} exchange{'s' * (count > 1)}"


def clock_facts(clock: Clock) -> Event:
    """Half of the ends lie within so many milliseconds of the first process's, all of them within `farthest_ms`."""
    errors = clock.errors_s or (0.0,)
    return {
        "shift_ms": round(1000 * clock.shift_s, 3),
        "drift_ppm": round(1e6 * clock.drift, 1),
        "within_ms": round(1000 * median(errors), 3),
        "farthest_ms": round(1000 * max(errors), 3),
        "exchanges": len(clock.errors_s),
    }


def moved(pid: int, trace: Event, clock: Clock) -> list[Event]:
    """A group of rows named by the machine; times are still seconds."""
    named = [event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"]
    title: list[Event] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": trace["motley"]["process"]}},
        {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}},
    ]
    events = [
        {**event, "pid": pid, "ts": clock.seconds(second(trace, event["ts"]))}
        for event in trace["traceEvents"]
        if event["ph"] == "X"
    ]
    return [*title, *row_names(named, pid), *events]


# -- python -m train trace ---------------------------------------------------------------------------------------------


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "python -m train trace FOLDER [FOLDER …] [--json]"
    parser.add_argument("folder", type=Path, nargs="+", help="with the traces of a run; the first gets trace.json.gz")


def main(args: argparse.Namespace) -> int:
    merged = merge(*args.folder)
    if not merged:
        places = ", ".join(map(str, args.folder))
        raise BadInput(f"no {TRACES} lies below {places}", fix="record steps first: train run --profile 20-23")
    result = {"ok": True, "file": str(merged.file), "bytes": merged.bytes, "lines": merged.lines}
    print(json.dumps(result) if args.json else "\n".join(words(merged)))
    return 0


def words(merged: Merged) -> list[str]:
    first, *rest = merged.lines
    return [
        f"{merged.file}  {merged.bytes / 1e6:.1f} MB · {first}",
        *rest,
        "open it at ui.perfetto.dev or chrome://tracing",
    ]
