"""What one process did in some steps: trace-0.json.gz, made of what torch.profiler saw. Chrome's format, cut to what
can be looked at. merge_traces.py joins those of all processes.
"""

from __future__ import annotations

import gzip
import heapq
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from train.files import write_atomic

LABEL = "motley: "
"""Begins the name of what our own code marks."""
STEP, COMPUTE, EXCHANGE, FIGURES, UPDATE = (
    LABEL + name for name in ("step ", "compute", "exchange", "figures", "update")
)
SHORTEST_US = 20.0
"""The shortest operation on the CPU that is kept; the shorter ones are most of a trace."""
MOST_EVENTS = 100_000
"""The most events that are kept of a process; the longest stay."""
GPU = ("kernel", "gpu_memcpy", "gpu_memset", "gpu_user_annotation")
CHUNK = 1 << 20

Event = dict[str, Any]


def write_trace(file: Path, seen: Path, facts: Event) -> int:
    """Writes the trace from the file that torch wrote; `facts` say whose it is. Returns its bytes."""
    base_ns, events = read_events(seen)
    kept, rows = slim(events)
    whole = {"traceEvents": [*row_names(rows), *kept], "displayTimeUnit": "ms", "base_ns": base_ns, "motley": facts}
    data = gzip.compress(json.dumps(whole, separators=(",", ":")).encode(), compresslevel=6)
    write_atomic(file, data)
    return len(data)


def read_trace(file: Path) -> Event:
    return dict(json.loads(gzip.decompress(file.read_bytes())))


def read_events(file: Path) -> tuple[int, Iterator[Event]]:
    """When its clock began, and its events one at a time: the file may have some hundred MB, and the training needs the
    memory."""
    stream = file.open(encoding="utf-8")
    head = ""
    while '"traceEvents":' not in head and (more := stream.read(CHUNK)):
        head += more
    head, _, rest = head.partition('"traceEvents":')
    base = re.search(r'"baseTimeNanoseconds": *(\d+)', head)

    def events() -> Iterator[Event]:
        with stream:
            text, at, decoder = rest, re.match(r"\s*\[?", rest).end(), json.JSONDecoder()  # type: ignore[union-attr]
            while True:
                at = re.compile(r"[\s,]*").match(text, at).end()  # type: ignore[union-attr]
                if text[at : at + 1] == "]":
                    return
                try:
                    event, at = decoder.raw_decode(text, at)
                except ValueError:
                    if not (more := stream.read(CHUNK)):
                        return
                    text, at = text[at:] + more, 0
                    continue
                yield event

    return int(base[1]) if base else 0, events()


def slim(events: Iterable[Event]) -> tuple[list[Event], list[str]]:
    """Labels, what took long on the CPU, and all of the GPUs; each with the number of its row, and the rows' names."""
    threads: dict[Any, str] = {}
    longest: list[tuple[float, int, Event]] = []
    for number, event in enumerate(events):
        if event["ph"] == "M" and event["name"] == "thread_name":
            threads[event["tid"]] = event["args"]["name"]
        if event["ph"] != "X" or not is_kept(event):
            continue
        weight = float("inf") if event["cat"] == "user_annotation" else float(event["dur"])
        slot = (weight, number, {name: event[name] for name in ("name", "cat", "pid", "tid", "ts", "dur")})
        if len(longest) < MOST_EVENTS:
            heapq.heappush(longest, slot)
        else:
            heapq.heappushpop(longest, slot)
    remaining = sorted((event for _, _, event in longest), key=lambda event: float(event["ts"]))
    labelled = {event["tid"] for event in remaining if event["name"].startswith(STEP)}

    def row_of(event: Event) -> tuple[int, str]:
        if event["cat"] in GPU:
            return 2, f"GPU {event['pid']}, stream {event['tid']}"
        inner = re.search(r"\((.+)\)", threads.get(event["tid"], ""))
        return (0, "steps") if event["tid"] in labelled else (1, f"{inner[1] if inner else 'thread'} {event['tid']}")

    rows = sorted({row_of(event) for event in remaining})
    kept = [
        {
            "ph": "X",
            "name": event["name"],
            "cat": event["cat"],
            "pid": 0,
            "tid": rows.index(row_of(event)),
            "ts": float(event["ts"]),
            "dur": float(event["dur"]),
        }
        for event in remaining
    ]
    return kept, [name for _, name in rows]


def is_kept(event: Event) -> bool:
    kind = event.get("cat")
    return kind in ("user_annotation", *GPU) or (kind == "cpu_op" and float(event["dur"]) >= SHORTEST_US)


def row_names(rows: list[str], pid: int = 0) -> list[Event]:
    """The events that name the rows, one below the other in this order."""
    facts = [("thread_name", "name", rows), ("thread_sort_index", "sort_index", range(len(rows)))]
    return [
        {"ph": "M", "name": kind, "pid": pid, "tid": number, "args": {key: value}}
        for kind, key, values in facts
        for number, value in enumerate(values)
    ]
