"""What happened in a run, gathered from the files its nodes wrote. Reads only; knows nothing of how it is shown.

A node that was away lacks what happened meanwhile, and a dead one has steps that the others trained again: for every
step the newest account counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train.runlog.paths import ANSWERS, EVENTS, GPU, LAUNCH, MEMBERS
from train.runlog.state import Change, Event, history, nodes_of, replay, time_of
from train.runlog.tail import read


@dataclass(kw_only=True)
class History:
    run: str
    nodes: list[str]
    total_steps: int
    starts: list[Event]
    steps: list[Event]
    """The steps that count, in order."""
    repeated: int
    """Steps that were trained a second time."""
    evals: list[Event]
    news: list[Event]
    """Lost, returned, failed and warned: what follow would have shown, in order of time."""
    ending: Event | None
    cards: dict[str, list[Event]] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    """What was predicted: step_s and shares; empty where no speeds were known."""
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def began(self) -> float:
        return min(map(time_of, [*self.starts, *self.steps]))

    @property
    def seconds(self) -> float:
        return max(map(time_of, [*self.starts, *self.steps, *([self.ending] if self.ending else [])])) - self.began


class NothingHappened(Exception):
    """There are no events to show."""


def newest_run(results: Path) -> Path:
    """The folder of the run that was fetched last."""
    runs = [folder for folder in results.glob("*") if any(folder.rglob(EVENTS))]
    if not runs:
        raise NothingHappened(f"no run has been fetched\n  into {results}\n  fix: make fetch")
    return max(runs, key=lambda folder: max(file.stat().st_mtime for file in folder.rglob(EVENTS)))


def read_history(folder: Path) -> History:
    """`folder` holds the files of a run, or a folder for each node with them."""
    state, changes = replay([*_gather(folder, EVENTS), *_gather(folder, MEMBERS)])
    starts = [change.event for change in changes if change.kind == "start"]
    if not starts:
        raise NothingHappened(f"no events of a run\n  in {folder}\n  fix: make fetch RUN={folder.name}")
    steps = history(change.event for change in changes)
    trained = [change.event["step"] for change in changes if change.kind == "step"]
    evals = {change.event["step"]: change.event for change in changes if change.kind == "eval"}
    cards: dict[str, list[Event]] = {}
    for reading in _gather(folder, GPU):
        cards.setdefault(str(reading["node"]), []).append(reading)
    return History(
        run=state.run,
        nodes=nodes_of(process for start in starts for process in start["nodes"]),
        total_steps=state.total,
        starts=starts,
        steps=steps,
        repeated=len(trained) - len(set(trained)),
        evals=[evals[step] for step in sorted(evals)],
        news=[word for change in changes if (word := in_words(change))],
        ending=state.ending,
        cards=cards,
        plan=next(filter(None, (_json(file).get("foretold") for file in sorted(folder.rglob(LAUNCH)))), {}),
        answers=_json(folder / ANSWERS),
    )


def in_words(change: Change) -> Event:
    """From the trainer its warnings and its end; from the agents who went and who came."""
    event = change.event
    word = {"time": event["time"], "step": event.get("step")}
    if "epoch" not in event:
        if change.kind == "failed":
            return word | {"what": f"{event['node']}: {event['message']}"}
        text = {"warning": "message", "balance": "reason"}.get(change.kind)
        return word | {"what": event[text], "quiet": change.kind == "balance"} if text else {}
    who = ", ".join(map(str, event.get("nodes") or [event["node"]]))
    reason = f" ({event['reason']})" if event.get("reason") else ""
    what = {
        "lost": f"{who} lost{reason}",
        "joined": f"{who} back",
        "waiting": f"{who} waits{reason}",
        "stalled": f"{who} stalled{reason}",
    }.get(change.kind)
    return word | {"what": what, "mark": True} if what else {}


def _gather(folder: Path, name: str) -> list[Event]:
    """The events in the files of this name, of all nodes, in order of time."""
    events = [event for file in sorted(folder.rglob(name)) for event in read(file)]
    return sorted((event for event in events if "time" in event and "event" in event), key=time_of)


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
