"""The state of a run: events in, changes out. follow, status, the report, TensorBoard's curves and the demo's summary
are views of it.

Pure. Events may come from several nodes, and again from the next one: all of them write the same, each with its own
clock, and one that was away lacks some. Every thing is one change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from train.runlog import tail
from train.runlog.time_left import StepTime
from train.runlog.trials import Trial, from_events

Event = tail.Event

SAME_S = 5.0
"""The seconds within which all nodes have written the same start or step."""
SAME_WAIT_S = 30.0
CLOCKS_S = 2.0
"""How far the nodes' clocks may be apart."""
ENDS = ("done", "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Gap:
    """Nobody trains: from the last step before the nodes changed to the next one."""

    time: float
    step: int
    nodes: list[str]
    """The nodes that trained before."""
    restarted: bool = False
    """Whether a group of processes has begun since then."""


@dataclass(frozen=True, slots=True)
class Change:
    event: Event
    gap: Gap | None = None
    """The gap that the event ends, where it is a step."""

    @property
    def kind(self) -> str:
        return str(self.event["event"])


@dataclass(kw_only=True, slots=True)
class RunState:
    run: str = ""
    total: int = 0
    """Steps of the whole run."""
    epoch_steps: float = 0.0
    """Steps of one pass over the data; 0 where an older Motley did not write down the rows."""
    started: float = 0.0
    """When it started, or continued, last."""
    last: Event = field(default_factory=dict)
    """The newest step event."""
    step_time: StepTime = field(default_factory=StepTime)
    members: list[str] = field(default_factory=list)
    """The nodes that train."""
    state: str = "starting"
    reason: str = ""
    proven: list[str] = field(default_factory=list)
    """The nodes of the first step that was proven."""
    failure: Event = field(default_factory=dict)
    """The failure that a trainer reported after the last step."""
    ending: Event | None = None
    """The trainer's done, failed or stopped, after the last step."""
    verdict: str = ""
    """The agents' word at the end of the run: done or failed."""
    why_ended: str = ""
    gap: Gap | None = None
    doing: dict[str, Event] = field(default_factory=dict)
    """Node → what it does until the run starts, and since when: its own word."""
    lost: dict[str, int] = field(default_factory=dict)
    """Node → the step at which it was lost."""
    away: dict[str, Event] = field(default_factory=dict)
    """Node → why it steps aside, and since when: its own word."""
    noted: list[Event] = field(default_factory=list)
    """What is told of pieces, and that they are done."""
    seen: dict[tuple[Any, ...], list[float]] = field(default_factory=dict)

    @property
    def step(self) -> int:
        return int(self.last.get("step", 0))

    @property
    def left_s(self) -> float:
        return self.step_time.left_s(self.step, self.total)

    @property
    def stepped(self) -> float:
        return float(self.last.get("time", 0.0))

    def apply(self, event: Event) -> list[Change]:
        """One line of a node's events.jsonl or members.jsonl."""
        return self._member(event) if "epoch" in event else self._trainer(event)

    def _first(self, event: Event, *key: Any, within_s: float = float("inf")) -> list[Change]:
        """The change, where no node has written it before."""
        times = self.seen.setdefault((event["event"], *key), [])
        is_again = any(abs(time - event["time"]) <= within_s for time in times)
        times.append(float(event["time"]))
        return [] if is_again else [Change(event)]

    # -- the trainer's events ------------------------------------------------------------------------------------------

    def _trainer(self, event: Event) -> list[Change]:
        kind = event["event"]
        if kind == "start":
            return self._start(event)
        if kind == "step":
            return self._step(event)
        if kind == "piece":
            return self._piece(event)
        if kind == "note":
            return self._noted(event)
        if kind == "doing":
            self.doing[event["node"]] = event
        if kind == "early_stop":
            self.total = int(event["step"])
        if kind == "proof" and event["step"] and not self.proven:
            self.proven = list(self.members)
        if kind in ENDS and event["time"] >= self.stepped - 1 and not (kind == "failed" and self._was_stopped()):
            self.ending = event
        if kind == "failed" and event["time"] > self.stepped:
            self.failure = event
        detail = {"eval": "loss", "warning": "message", "failed": "message", "balance": "reason"}.get(kind, "step")
        return self._first(event, event.get("step"), event.get("node"), event.get(detail))

    def _was_stopped(self) -> bool:
        """Whether the run was stopped: a node that is told last sees the others leave, and its trainer fails."""
        return self.ending is not None and self.ending["event"] == "stopped"

    def _start(self, event: Event) -> list[Change]:
        self.run, self.total = event.get("run", self.run), int(event["total_steps"])
        self.epoch_steps = int(event.get("rows") or 0) / max(1, int(event.get("rows_per_step") or 0))
        self.members, self.doing, self.started = nodes_of(event["nodes"]), {}, float(event["time"])
        if self.gap and event["time"] > self.gap.time:
            self.gap = Gap(self.gap.time, self.gap.step, self.gap.nodes, restarted=True)
        return self._first(event, event["step"], within_s=SAME_S)

    def _step(self, event: Event) -> list[Change]:
        step, time = int(event["step"]), float(event["time"])
        new = self._first(event, step, event["loss"], event["step_s"], within_s=SAME_S)
        if not new or (step <= self.step and time <= self.stepped + 0.5):
            return []
        ended = None
        if self.gap and not self.gap.restarted:  # the last step of the group that ends
            self.gap = Gap(time, step, self.gap.nodes)
        elif self.gap and time > self.gap.time:
            ended, self.gap = self.gap, None
        self.step_time.add(float(event["step_s"]))
        self.last, self.members, self.state, self.failure = event, nodes_of(event["nodes"]), "training", {}
        if self.ending and time > self.ending["time"] + 1:
            self.ending = None
        return [Change(event, ended)]

    def _piece(self, event: Event) -> list[Change]:
        """A piece is done. Nodes may hear of pieces in another order, so the most counts."""
        new = self._first(event, event["piece"])
        self.noted += [event] if new else []
        if new:
            goes_on = self.last.get("event") == "piece" and self.stepped >= self.started
            before = self.stepped if goes_on else event["time"] - event["step_s"]
            self.step_time.add(max(0.0, event["time"] - before))
        if new and event["step"] >= self.step:
            self.last, self.members, self.state, self.failure = event, list(event["nodes"]), "working", {}
            self.gap, self.doing = None, {}
            self.proven = self.proven or self.members
        return new

    def _noted(self, event: Event) -> list[Change]:
        """What a machine tells of the piece that it does."""
        new = self._first(event, event["piece"], json.dumps(event["fact"], sort_keys=True))
        if new:
            self.noted.append(event)
            self.doing.pop(event["node"], None)
        return new

    @property
    def trials(self) -> list[Trial]:
        """The trials of a sweep; else none."""
        return from_events(self.noted)

    # -- the agents' events --------------------------------------------------------------------------------------------

    def _member(self, event: Event) -> list[Change]:
        kind, reason = event["event"], str(event.get("reason", ""))
        old = float(event["time"]) < self.stepped - CLOCKS_S  # of another node's log, long known
        if kind == "up":
            self.away.pop(event["node"], None)
        if kind in ("up", "plan") or (old and kind not in ("ended", "woke", "away", "back")):
            return []
        if kind == "failed" and event.get("whose") == "peer":  # it only noticed that another one is lost
            return []
        if kind in ("woke", "away", "back"):
            if kind == "away":
                self.away[event["node"]] = event
            elif kind == "back":
                self.away.pop(event["node"], None)
            return self._first(event, event["time"], event["node"])
        waits = (reason, SAME_WAIT_S) if kind == "waiting" else ("", float("inf"))
        new = self._first(event, event["epoch"], *event.get("nodes", ()), waits[0], within_s=waits[1])
        if not new:
            return []
        if kind in ("lost", "joined", "failed", "stalled", "unfit") and not self.gap and self.last:
            self.gap = Gap(self.stepped, self.step, list(rows_of(self.last)))
        if kind == "lost":
            self.lost |= dict.fromkeys(event["nodes"], int(event["step"]))
        elif kind == "joined":
            self.lost = {name: step for name, step in self.lost.items() if name not in event["nodes"]}
        elif kind == "waiting":
            self.state, self.reason = "waiting", reason
        elif kind == "ended":
            self._end(reason, done=bool(event.get("done")))
        return new

    def _end(self, reason: str, *, done: bool) -> None:
        self.state = self.verdict = "done" if done else "failed"
        self.why_ended = reason
        if self.state == "failed" and self.failure:  # the trainers that were ended for it wrote `stopped`
            self.ending = self.failure

    def observe(self, view: Mapping[str, Any], *, running: bool) -> list[Change]:
        """agent.json of a node, and whether a process of the run is there."""
        state, reason = str(view.get("state", self.state)), str(view.get("reason", ""))
        if running:
            self.state, self.reason = state, reason
        elif state in ("done", "failed") and view and not self.verdict:
            self._end(reason, done=state == "done")
            ended = {"event": "ended", "time": view.get("time", 0.0), "done": state == "done", "reason": reason}
            return [Change(ended)]
        return []


def steps_aside(event: Event, name: str) -> bool:
    """A lost node that somebody needs for something else is missed by nobody."""
    return bool(event.get("how", {}).get(name) == "away")


def why_lost(event: Event, names: list[str]) -> str:
    """Each reason once; an agent that has not decided it knows none of them."""
    reasons = event.get("why", {})
    return ", ".join(dict.fromkeys(reasons[name] for name in names if name in reasons)) or str(event["reason"])


def replay(events: Iterable[Event]) -> tuple[RunState, list[Change]]:
    """What a run has come to, from the events of all its nodes."""
    state = RunState()
    return state, [change for event in sorted(events, key=time_of) for change in state.apply(event)]


def history(events: Iterable[Event]) -> list[Event]:
    """The steps that count: where a run was resumed, what lay behind that point is trained again."""
    steps: dict[int, Event] = {}
    for event in events:
        if event["event"] == "start":
            steps = {number: step for number, step in steps.items() if number <= event["step"]}
        elif event["event"] == "step":
            steps[int(event["step"])] = event
    return [steps[number] for number in sorted(steps)]


def time_of(event: Event) -> float:
    return float(event["time"])


def node_of(process: str) -> str:
    """`gpu-worker-1` of `gpu-worker-1:0`, where a node has several processes."""
    return process.partition(":")[0]


def nodes_of(processes: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(map(node_of, processes)))


def rows_of(step: Event) -> dict[str, int]:
    return {node: int(rows) for node, rows in by_node(step, "rows").items()}


def by_node(step: Event, key: str) -> dict[str, float]:
    """One figure of a step; of the processes of a node the sum."""
    sums: dict[str, float] = {}
    for process, facts in step.get("nodes", {}).items():
        sums[node_of(process)] = sums.get(node_of(process), 0.0) + float(facts.get(key) or 0.0)
    return sums
