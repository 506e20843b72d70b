"""The event log of a run: events.jsonl, one JSON object a line, the same on every node; and one line for who watches.

What each event has: event_types.py, and docs/inside/events.md for people.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping
from io import FileIO
from pathlib import Path
from typing import Any, TextIO

from train.runlog.event_types import FIELDS, MadeRows
from train.runlog.pipe_in_words import layer_words
from train.runlog.time_left import StepTime
from train.safe_stdio import draw, plain

ON_DATA = "on "
"""How the measure of one of several data sets begins, among an evaluation's metrics; its name stands behind it."""


class EventLog:
    """Appends events; a node's one writing process has a file, the others none. What a full disk does not take now is
    kept and written with a later event: a log must not end a run, nor have gaps."""

    def __init__(self, file: Path | None) -> None:
        self.file: FileIO | None = None
        self.unwritten = b""
        if file is not None:
            file.parent.mkdir(parents=True, exist_ok=True)
            drop_torn_line(file)
            self.file = FileIO(str(file), "a")

    def write(self, kind: str, **facts: object) -> None:
        known, sometimes = FIELDS[kind].keys(), MadeRows.__annotations__ if kind == "step" else ()
        if facts.keys() - sometimes != known:
            raise ValueError(f"event {kind}: {sorted(facts.keys() ^ known)} missing or unknown")
        if self.file is None:
            return
        self.unwritten += as_json({"event": kind, "time": round(time.time(), 3), **facts}).encode() + b"\n"
        try:
            self.unwritten = self.unwritten[self.file.write(self.unwritten) :]
        except OSError:
            self.lives()  # the file does not grow

    def lives(self) -> None:
        """Shows the agent that this process lives, where there is nothing to write."""
        if self.file is not None:
            with contextlib.suppress(OSError):
                os.utime(self.file.fileno())


def as_json(event: Mapping[str, object]) -> str:
    """A number that is none, as the gradient of a step that fp16's scaler skips, is null: JSON has no Infinity."""
    try:
        return json.dumps(event, allow_nan=False)
    except ValueError:
        return json.dumps(json.loads(json.dumps(event), parse_constant=lambda _: None))


def progress_line(event: Mapping[str, Any], total_steps: int, eta_s: float) -> str:
    rows = sum(node["rows"] for node in event["nodes"].values())
    shares = "  ".join(f"{name} {_share(node)}" for name, node in event["nodes"].items())
    tokens = "" if event["tokens"] == rows else f"{event['tokens'] / event['step_s']:.0f} tokens/s  "
    hours, rest = divmod(int(eta_s), 3600)
    return (
        f"step {event['step']}/{total_steps}  {100 * event['step'] // total_steps} %  {step_words(event)}  "
        f"{rows / event['step_s']:.1f} rows/s  {tokens}{shares}  "
        f"eta {hours}:{rest // 60:02d}:{rest % 60:02d}"
    )


def step_words(event: Mapping[str, Any]) -> str:
    """The loss of a step, or its reward where that is what the run is about; of pairs what became of them, too."""
    if "rollout" in event:
        return f"reward {event['rollout']['reward']:.4f}"
    return f"loss {known(event['loss'], '.4f')}{pair_words(event.get('pairs', {}))}"


def known(value: float | None, form: str) -> str:
    """A number of the log, where null stands for one that is none."""
    return "infinite" if value is None else format(value, form)


def pair_words(figures: Mapping[str, float]) -> str:
    """Behind a loss: how far the better answers are ahead, and how many are."""
    margin = f" · margin {known(figures['margin'], '.3f')}" if "margin" in figures else ""
    return margin + (f" · {100 * figures['accuracy']:.0f} % right" if "accuracy" in figures else "")


def _share(node: Mapping[str, Any]) -> str:
    """A stage of a pipe computes the rows of the stage before it."""
    first, end = node.get("layers", (0, 0))
    return layer_words(first, end) if first else f"{node['rows']}"


def held_out_words(event: Mapping[str, Any]) -> str:
    """The loss of an evaluation, or its reward where that is what the run is about, and what stands beside it."""
    metrics = dict(event.get("metrics") or {})  # of older runs none
    if (reward := metrics.pop("reward", None)) is not None:
        return f"held-out reward {reward:.4f}{metric_words(metrics)}"
    if metrics.keys() & {"chosen_log_p", "rejected_log_p", "chosen_reward"}:
        by_data = {name: value for name, value in metrics.items() if name.startswith(ON_DATA)}
        return f"held-out loss {known(event['loss'], '.4f')}{pair_words(metrics)}{metric_words(by_data)}"
    return f"held-out loss {known(event['loss'], '.4f')}{metric_words(metrics)}"


def evaluated_words(event: Mapping[str, Any]) -> str:
    """An evaluation in a line: what came of it and when."""
    if not event["step"]:
        return f"{held_out_words(event)} before the first step"
    return f"{held_out_words(event)} after step {event['step']}{' (best so far)' * bool(event['best'])}"


def early_words(event: Mapping[str, Any]) -> str:
    return f"ends early at step {event['step']}: {event['reason']} · the result is step {event['best']}"


def metric_words(metrics: Mapping[str, float | None]) -> str:
    """Behind a held-out loss; empty for a recipe that measures nothing else."""
    return "".join(f" · {name} {known(value, '.4g')}" for name, value in metrics.items())


def sample_line(sample: dict[str, str]) -> str:
    """What the model was given, and how it continued, on one line."""
    given, wrote = (" ".join(sample[part].split()) for part in ("given", "wrote"))
    return f"{given} ▸ {wrote}"[:100]


class ProgressLine:
    """One line that stays in place on a terminal; in a journal, a line every few seconds."""

    def __init__(self, out: TextIO | None, total_steps: int, every_s: float = 5.0) -> None:
        self.out = out
        self.total_steps = total_steps
        self.every_s = every_s
        self.last = 0.0
        self.step_time = StepTime()

    def show(self, event: Mapping[str, Any]) -> None:
        if self.out is None:
            return
        self.step_time.add(event["step_s"])
        line = progress_line(event, self.total_steps, self.step_time.left_s(event["step"], self.total_steps))
        if self.out.isatty():
            draw(f"\r\x1b[2K{plain(line)[: shutil.get_terminal_size().columns - 1]}", self.out)
            self.out.flush()
        elif time.monotonic() - self.last >= self.every_s or event["step"] in (1, self.total_steps):
            self.last = time.monotonic()
            self.say(line)

    def say(self, text: str) -> None:
        if self.out is not None:
            draw("\r\x1b[2K" if self.out.isatty() else "", self.out)
            self.out.write(f"{text}\n")
            self.out.flush()


def person(json_wanted: bool) -> TextIO:
    """Where words for a person go: stdout belongs to the JSON where that is asked for."""
    return sys.stderr if json_wanted else sys.stdout


def append_whole(file: Path, lines: str, *, lasts: bool = False) -> None:
    """All of it, behind whole lines; or nothing, with an OSError. `lasts`: it survives a power cut from now on."""
    file.parent.mkdir(parents=True, exist_ok=True)
    drop_torn_line(file)
    with file.open("ab", buffering=0) as stream:
        size, data = stream.tell(), lines.encode()
        try:
            while data:
                data = data[stream.write(data) :]
            if lasts:
                os.fsync(stream.fileno())
        except OSError:
            stream.truncate(size)  # it is written again, all of it
            raise


def drop_torn_line(file: Path) -> None:
    if not file.exists() or not file.stat().st_size:
        return
    with file.open("rb+") as handle:
        handle.seek(-1, os.SEEK_END)
        if handle.read(1) != b"\n":  # else the rest need not be read: a file of answers grows by thousands of lines
            handle.seek(0)
            handle.truncate(handle.read().rfind(b"\n") + 1)
