"""What happened in a run, gathered from the files its nodes wrote. Reads only; knows nothing of how it is shown.

A node that was away lacks what happened meanwhile, and a dead one has steps that the others trained anew: for every
step the newest account counts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Event = dict[str, Any]
EVENTS, MEMBERS, CARDS, LAUNCH, ANSWERS = "events.jsonl", "members.jsonl", "gpu.jsonl", "launch.json", "answers.json"


@dataclass(kw_only=True)
class Story:
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
    """Lost, returned, failed and warned: what a person would have been told, in order of time."""
    ending: Event | None
    cards: dict[str, list[Event]] = field(default_factory=dict)
    plan: dict[str, Any] = field(default_factory=dict)
    """What was foretold: step_s and shares; empty where no speeds were known."""
    answers: dict[str, Any] = field(default_factory=dict)

    @property
    def began(self) -> float:
        return float(min(event["time"] for event in [*self.starts, *self.steps]))

    @property
    def seconds(self) -> float:
        last = max(event["time"] for event in [*self.starts, *self.steps, *([self.ending] if self.ending else [])])
        return float(last) - self.began


class NothingHappened(Exception):
    """There are no events to tell of."""


def newest_run(results: Path) -> Path:
    """The folder of the run that was fetched last."""
    runs = [folder for folder in results.glob("*") if any(folder.rglob(EVENTS))]
    if not runs:
        raise NothingHappened(f"no run has been fetched\n  into {results}\n  fix: make fetch")
    return max(runs, key=lambda folder: max(file.stat().st_mtime for file in folder.rglob(EVENTS)))


def read_story(folder: Path) -> Story:
    """`folder` holds the files of a run, or a folder for each node with them."""
    events = _gather(folder, EVENTS)
    if not any(event["event"] == "start" for event in events):
        raise NothingHappened(f"no events of a run\n  in {folder}\n  fix: make fetch RUN={folder.name}")
    members = _gather(folder, MEMBERS)
    counted, repeated = the_steps_that_count(events)
    starts = _once([event for event in events if event["event"] == "start"], "step")
    evals = {event["step"]: event for event in events if event["event"] == "eval"}
    endings = [event for event in events if event["event"] in ("done", "failed", "stopped")]
    return Story(
        run=starts[-1]["run"],
        nodes=node_names(starts),
        total_steps=starts[-1]["total_steps"],
        starts=starts,
        steps=counted,
        repeated=repeated,
        evals=[evals[step] for step in sorted(evals)],
        news=the_news(events, members),
        ending=endings[-1] if endings and endings[-1]["time"] >= counted[-1]["time"] - 1 else None,
        cards=_cards(folder),
        plan=next(filter(None, (_json(file).get("foretold") for file in sorted(folder.rglob(LAUNCH)))), {}),
        answers=_json(folder / ANSWERS),
    )


def the_steps_that_count(events: Iterable[Event]) -> tuple[list[Event], int]:
    """One event a step, the newest; and how many steps were trained more than once."""
    newest: dict[int, Event] = {}
    accounts: dict[int, set[str]] = {}
    for event in events:
        if event["event"] != "step":
            continue
        step = int(event["step"])
        # All nodes tell the same facts of a step; other facts mean that it was trained again.
        facts = json.dumps([event["loss"], event["step_s"], event["nodes"]], sort_keys=True)
        accounts.setdefault(step, set()).add(facts)
        if step not in newest or event["time"] >= newest[step]["time"]:
            newest[step] = event
    return [newest[step] for step in sorted(newest)], sum(len(told) - 1 for told in accounts.values())


def node_of(process: str) -> str:
    """`gpu-worker-1` of `gpu-worker-1:0`, where a node has several processes."""
    return process.rpartition(":")[0] if process.rpartition(":")[2].isdigit() and ":" in process else process


def node_names(starts: list[Event]) -> list[str]:
    return list(dict.fromkeys(node_of(process) for start in starts for process in start["nodes"]))


def by_node(step: Event, key: str) -> dict[str, float]:
    """One figure of a step, the processes of a node added up."""
    sums: dict[str, float] = {}
    for process, facts in step["nodes"].items():
        sums[node_of(process)] = sums.get(node_of(process), 0.0) + float(facts[key])
    return sums


def the_news(events: list[Event], members: list[Event]) -> list[Event]:
    """From the trainer its warnings and its end; from the agents who went and who came. Each told once."""
    words: list[Event] = []
    for event in events:
        if event["event"] == "warning":
            words.append({"time": event["time"], "step": event["step"], "what": event["message"]})
        elif event["event"] == "balance":
            words.append({"time": event["time"], "step": event["step"], "what": event["reason"], "quiet": True})
        elif event["event"] == "failed":
            words.append({"time": event["time"], "step": event["step"], "what": f"{event['node']}: {event['message']}"})
    for event in members:
        if what := _membership(event):
            words.append({"time": event["time"], "step": event.get("step"), "what": what, "mark": True})
    told: list[Event] = []
    for word in sorted(words, key=lambda word: float(word["time"])):
        if not any(word["what"] == old["what"] and abs(word["time"] - old["time"]) < 30 for old in told):
            told.append(word)
    return told


def _membership(event: Event) -> str:
    names = event.get("nodes") or ([event["node"]] if event.get("node") else [])
    who = ", ".join(map(str, names))
    reason = f" ({event['reason']})" if event.get("reason") else ""
    return {
        "lost": f"{who} lost{reason}",
        "joined": f"{who} back",
        "waiting": f"{who} waits{reason}",
        "stalled": f"{who} stalled{reason}",
    }.get(event["event"], "")


def _gather(folder: Path, name: str) -> list[Event]:
    """The lines of this file, of all nodes, in order of time; a line torn by a power cut is left out."""
    events: list[Event] = []
    for file in sorted(folder.rglob(name)):
        for line in file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]:
            try:
                event = json.loads(line)
            except ValueError:
                continue
            if isinstance(event, dict) and "time" in event and "event" in event:
                events.append(event)
    return sorted(events, key=lambda event: float(event["time"]))


def _once(events: list[Event], key: str) -> list[Event]:
    """Every node tells of the same start, within the seconds that their clocks differ."""
    kept: list[Event] = []
    for event in events:
        if not any(event[key] == old[key] and abs(event["time"] - old["time"]) < 5 for old in kept):
            kept.append(event)
    return kept


def _cards(folder: Path) -> dict[str, list[Event]]:
    readings: dict[str, list[Event]] = {}
    for event in _gather(folder, CARDS):
        readings.setdefault(str(event["node"]), []).append(event)
    return readings


def _json(file: Path) -> dict[str, Any]:
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
