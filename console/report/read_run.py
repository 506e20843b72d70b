"""What happened in a run, gathered from the files its nodes wrote. Reads only; knows nothing of how it is shown.

A node that was away lacks what happened meanwhile, and a dead one has steps that the others trained again: for every
step the newest account counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from console.report import one_clock
from console.report.what_happened import happened
from plugins.module_utils.motley.files import read_json
from plugins.module_utils.motley.node_replies import Launched
from train.plan.settings.read_settings import RunConfig, kind_of
from train.runlog import scores
from train.runlog.event_types import is_event
from train.runlog.paths import AGENT, ANSWERS, EVENTS, GPU, LAUNCH, MADE, MEMBERS, TRACE
from train.runlog.state import Change, Event, RunState, by_node, history, nodes_of, replay, time_of
from train.runlog.tail import read
from train.runlog.trials import Trial


class Predicted(TypedDict, total=False):
    """The plan's word: seconds of a step, and each node's rows of it."""

    step_s: float
    shares: dict[str, float]


class Price(TypedDict, total=False):
    kwh_price: float | None
    currency: str
    idle_watts: dict[str, float | None]


class LaunchRecord(Launched, total=False):
    """launch.json of a node, or of this computer (console/launch_records.py)."""

    all: dict[str, object]
    """Every setting, with those that nobody asked for."""
    electricity: Price | None
    predicted: Predicted


class Answered(TypedDict, total=False):
    loss: float | None


class Answers(TypedDict, total=False):
    """Held-out questions, answered by the base and with the adapter after the run."""

    base: Answered
    adapter: Answered
    questions: list[dict[str, str]]


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
    samples: list[Event]
    """What the model wrote at each evaluation; empty where it is fine-tuned."""
    news: list[Event]
    """What happened to whom, in order of time: what_happened.py."""
    ending: Event | None
    pieces: list[Event] = field(default_factory=list)
    """What was done, each piece once, of a run whose work comes in pieces."""
    trials: list[Trial] = field(default_factory=list)
    """The trials of a sweep; else none."""
    verdict: str = ""
    """The agents' word at the end: done or failed."""
    why_ended: str = ""
    cards: dict[str, list[Event]] = field(default_factory=dict)
    """Readings of the GPUs of the nodes that computed on theirs."""
    idle_cards: list[str] = field(default_factory=list)
    """Nodes whose GPUs were read, and did not compute."""
    gpus: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Each node's GPUs as nvidia-smi lists them."""
    launch: LaunchRecord = field(default_factory=LaunchRecord)
    """What was launched; empty where it was not by Motley."""
    fetched: bool = False
    """Whether what it made is here."""
    trace: str = ""
    """The file of the recorded steps, where it is here."""
    plan: Predicted = field(default_factory=Predicted)
    """Empty where no speeds were known."""
    answers: Answers = field(default_factory=Answers)
    scores: scores.Facts = field(default_factory=dict)
    """What came of the tasks that it was asked last; empty where it was asked none."""

    @property
    def began(self) -> float:
        return min(map(time_of, [*self.starts, *self.steps]))

    @property
    def seconds(self) -> float:
        ends = [self.ending] if self.ending else []
        return max(map(time_of, [*self.starts, *self.steps, *self.pieces, *ends])) - self.began

    @property
    def made(self) -> str:
        """What it makes: adapter or model."""
        return kind_of(recipe_of(self.launch)).RESULT

    @property
    def electricity(self) -> Price:
        """Price, currency and watts at rest that the inventory had at the launch; empty in older runs."""
        price: Price = self.launch.get("electricity") or {}
        return price

    @property
    def of_result(self) -> Event:
        """The evaluation of what it has made: the last one; with `patience` the best, whose weights are the result."""
        done = self.verdict == "done" or bool(self.ending and self.ending["event"] == "done")
        finite = [event for event in self.evals if event["loss"] is not None and math.isfinite(event["loss"])]
        if finite and done and self.launch.get("all", {}).get("patience"):
            return min(finite, key=lambda event: float(event["loss"]))
        return self.evals[-1]

    @property
    def asked_loss(self) -> tuple[float | None, float | None]:
        """The loss on held-out rows, of the base and with the adapter, as they were asked after the run."""
        return self.answers.get("base", {}).get("loss"), self.answers.get("adapter", {}).get("loss")


def recipe_of(launch: LaunchRecord) -> str:
    return str(launch.get("all", {}).get("recipe", RunConfig.recipe))


class NothingHappened(Exception):
    """There are no events to show."""


def newest_run(results: Path) -> Path:
    """The folder of the run that was fetched last."""
    runs = [folder for folder in results.glob("*") if any(folder.rglob(EVENTS))]
    if not runs:
        raise NothingHappened(f"no run has been fetched\n  into {results}\n  fix: ./motley fetch")
    return max(runs, key=lambda folder: max(file.stat().st_mtime for file in folder.rglob(EVENTS)))


def read_history(folder: Path) -> History:
    """`folder` holds the files of a run, or a folder for each node with them."""
    events, readings = gather(folder)
    state, changes = replay(events)
    if not any(change.kind == "start" for change in changes):
        raise NothingHappened(f"no events of a run\n  in {folder}\n  fix: ./motley fetch --run {folder.name}")
    launched = [read_json(file) for file in sorted(folder.rglob(LAUNCH))]
    return history_of(
        state,
        changes,
        readings,
        launch=launched[0] if launched else {},
        fetched=any((folder / name).is_dir() for name in MADE),
        trace=TRACE if (folder / TRACE).exists() else "",
        plan=next(filter(None, (launch.get("predicted") for launch in launched)), {}),
        answers=read_json(folder / ANSWERS),
        scores=scores.of_run(folder.resolve().parent, folder.resolve().name) or {},
        gpus={view["node"]: view.get("gpus") or [] for view in map(read_json, folder.rglob(AGENT)) if "node" in view},
    )


def history_of(state: RunState, changes: list[Change], readings: list[Event], **beside: Any) -> History:
    """The history of a run that is over, or still running: from what happened so far."""
    starts = [change.event for change in changes if change.kind == "start"]
    steps = history(change.event for change in changes)
    trained = [change.event["step"] for change in changes if change.kind == "step"]
    evals = {change.event["step"]: change.event for change in changes if change.kind == "eval"}
    wrote = {change.event["step"]: change.event for change in changes if change.kind == "samples"}
    computed = {node for step in steps for node, gb in by_node(step, "gpu_gb").items() if gb}
    cards: dict[str, list[Event]] = {}
    for reading in readings:
        cards.setdefault(str(reading["node"]), []).append(reading)
    return History(
        run=state.run,
        nodes=nodes_of(process for event in [*starts, *steps] for process in event["nodes"]),
        total_steps=state.total,
        starts=starts,
        steps=steps,
        repeated=len(trained) - len(set(trained)),
        evals=[evals[step] for step in sorted(evals)],
        samples=[wrote[step] for step in sorted(wrote)],
        news=happened(changes),
        ending=state.ending,
        pieces=[change.event for change in changes if change.kind == "piece"],
        trials=state.trials,
        verdict=state.verdict,
        why_ended=state.why_ended,
        cards={node: readings for node, readings in cards.items() if node in computed},
        idle_cards=sorted(cards.keys() - computed),
        **beside,
    )


def gather(folder: Path) -> tuple[list[Event], list[Event]]:
    """What all nodes wrote of the run, and of their cards, each in order of time."""
    places = sorted({file.parent for name in (EVENTS, MEMBERS, GPU) for file in folder.rglob(name)})
    logs = {place: whole(place / EVENTS) for place in places}
    known = one_clock.moments([*logs.values()])
    events, readings = list[Event](), list[Event]()
    for place, log in logs.items():
        events += one_clock.corrected(log, known) + one_clock.beside(whole(place / MEMBERS), log, known)
        readings += one_clock.beside(whole(place / GPU), log, known)
    return sorted(events, key=time_of), sorted(readings, key=time_of)


def whole(file: Path) -> list[Event]:
    return [event for event in read(file) if is_event(event, whole=True)]
