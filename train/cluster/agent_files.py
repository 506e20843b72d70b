"""The agent's files in logs/runs/RUN: members.jsonl (what happened), agent.json (its state now), epoch.json (its
memory), and its reading of the trainer's events.jsonl. docs/inside/events.md describes the first two."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train.cluster.agent_surroundings import Outside
from train.cluster.node_status import RunEnd
from train.cluster.notice_ledger import EMPTY, Ledger
from train.cluster.timing import TIMING
from train.runlog import paths
from train.runlog.tail import Event

ODD = (KeyError, TypeError, ValueError, OverflowError)
"""What reading facts raises where they are not as we write them."""
STEPS = ("step", "piece")
"""What a trainer writes when it has come further."""


class MemberLog:
    """members.jsonl, and the same for a person in the journal."""

    def __init__(self, folder: Path, node: str, outside: Outside) -> None:
        self.file, self.node, self.outside = folder / paths.MEMBERS, node, outside
        self.unwritten = ""
        """What a full disk has not taken yet."""

    def write(
        self, kind: str, *, number: int, step: int, host: str, nodes: Sequence[str], reason: str, **facts: Any
    ) -> None:
        at = round(self.outside.clock.wall(), 3)
        event = {"event": kind, "time": at, "node": self.node, "epoch": number, "step": step, "host": host}
        line = json.dumps({**event, "nodes": nodes, "reason": reason, **facts}) + "\n"
        title = {"plan": f"generation {number}", "ended": "done" if facts.get("done") else "ended"}.get(kind, kind)
        self.outside.say(f"{self.node}: {title}  {reason}")
        self.unwritten += line
        with contextlib.suppress(OSError):  # a full disk: training continues
            self.outside.disk.append(self.file, self.unwritten)
            self.unwritten = ""


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


@dataclass
class AgentMemory:
    """What an agent must know after it was killed: its newest generation, whether this launch has begun or ended,
    and what somebody was told of it."""

    file: Path
    launch: str
    """The hash of the launch's token: this file is shown and copied more easily than the one that holds the token."""
    outside: Outside
    number: int = 0
    begun: bool = False
    verdict: RunEnd | None = None
    ledger: Ledger = EMPTY

    @classmethod
    def load(cls, file: Path, token: str, outside: Outside) -> AgentMemory:
        memory = cls(file, _hash(token), outside)
        with contextlib.suppress(OSError, *ODD):
            facts = json.loads(outside.disk.read(file))
            memory.number = int(facts["epoch"])
            if (facts.get("launch") or _hash(facts["token"])) == memory.launch:  # the token: until November 2026
                memory.begun = bool(facts["begun"])
                memory.verdict = RunEnd(**facts["verdict"]) if facts["verdict"] else None
                memory.ledger = Ledger.of(facts["notices"])
        return memory

    def save(self) -> None:
        verdict = vars(self.verdict) if self.verdict else None
        facts = {"launch": self.launch, "epoch": self.number, "begun": self.begun, "verdict": verdict}
        facts |= {"notices": asdict(self.ledger)}
        with contextlib.suppress(OSError):
            self.outside.disk.write(self.file, json.dumps(facts))


@dataclass
class StatusFile:
    """agent.json: replaced whole when something has changed, and once a second; not worth an fsync."""

    file: Path
    outside: Outside
    state: str = ""
    since: float = 0.0
    next_at: float = 0.0

    def write(self, state: str, facts: Mapping[str, object]) -> None:
        at, wall = self.outside.clock.now(), self.outside.clock.wall()
        self.next_at = at + TIMING.show_s
        if state != self.state:
            self.state, self.since = state, at
        facts = {"time": round(wall, 3), "since": round(wall - (at - self.since), 3), **facts}
        with contextlib.suppress(OSError):
            self.outside.disk.show(self.file, json.dumps({"state": state, **facts}))


@dataclass
class TrainerProgress:
    """The signs of life in events.jsonl, and from them how long without one is too long."""

    file: Path
    eval_steps: float
    """How many training steps one evaluation takes at most, counted in rows."""
    outside: Outside
    step: int = 0
    best_step: int = 0
    """The highest step that this agent has seen: only beyond it is progress."""
    loss: float = 0.0
    done: bool = False
    early: str = ""
    """Why the run ended before its last step."""
    since: float = 0.0
    setup_s: float = 0.0
    """The longest time from start to first step so far."""
    step_s: float = 0.0
    started: float = 0.0
    stepped: bool = False
    touched_ns: int = 0
    save_s: float = 0.0
    """Seconds that a checkpoint may take: by its size, until one has been seen."""
    saved_bytes: float = 0.0
    """Bytes that a checkpoint holds: all that is trained, with the optimizer's moments."""
    saved: bool = False
    old: bool = True
    """Whether what is read was there before this agent: it shows the step, it is no progress."""

    SLOW_DISK = 30e6
    """Bytes a second that a slow disk takes: written, hashed and on the disk."""
    MEMORY = 150e6
    """Bytes a second to memory: a seventh of what two old cores did beside ten busy processes. The agent hashes it."""
    SAVED_BYTES = 12
    """Bytes saved for each trained weight: itself and the optimizer's two moments."""

    def begin(self) -> None:
        self.read()
        self.old = False
        self.started = self.since = self.outside.clock.now()
        self.stepped = self.done = False
        self.early = ""
        self.step_s = 0.0

    def __post_init__(self) -> None:
        self.started = self.since = self.outside.clock.now()
        self.tail = self.outside.disk.tail(self.file, 1 << 16)

    def read(self) -> None:
        at = self.outside.clock.now()
        with contextlib.suppress(OSError):
            touched_ns = self.outside.disk.changed_ns(self.file)
            if touched_ns != self.touched_ns:  # on a full disk nothing can be read, but somebody tries to write
                self.touched_ns, self.since = touched_ns, at
        for event in self.tail.events():
            with contextlib.suppress(*ODD):
                self._take(event, at)
            self.since = at

    def _take(self, event: Event, at: float) -> None:
        kind = event.get("event")
        if kind in STEPS and not self.old:
            if not self.stepped:
                self.setup_s = max(self.setup_s, at - self.started)
            self.stepped = True
            self.step_s = max(self.step_s, float(event["step_s"]))
        if kind == "start":
            self.saved_bytes = float(event["weights"]) * self.SAVED_BYTES
        if kind == "start" and not self.saved:
            self.save_s = self.saved_bytes / self.SLOW_DISK
        if kind == "checkpoint" and not self.old and not event.get("staged"):
            self.save_s, self.saved = 4 * float(event["seconds"]), True
        self.done = self.done or kind == "done"
        if kind == "early_stop" and not self.old:
            self.early = f"ended early at step {event['step']} ({event['reason']}); the best is step {event['best']}"
        self.step = int(event.get("step", self.step))
        self.loss = float(event.get("loss", self.loss)) if kind == "step" else self.loss
        if kind in STEPS and not self.old:
            self.best_step = max(self.best_step, self.step)

    def note_loading(self, at: float) -> None:
        """Takes loading for a sign of life until the first step: a joining node's disk is cold."""
        if not self.stepped and at - self.started < TIMING.first_step_s:
            self.since = at

    def leaving_s(self, *, in_memory: bool) -> float:
        """Seconds that workers which are told to go have for saving, by what there is to save."""
        return max(TIMING.save_s, self.saved_bytes / self.MEMORY if in_memory else self.save_s)

    @property
    def limit_s(self) -> float:
        if not self.stepped:
            return max(TIMING.again_first_step_s, 4 * self.setup_s) if self.setup_s else TIMING.first_step_s
        return max(TIMING.stall_s, (10 + 2 * self.eval_steps) * self.step_s, self.setup_s) + self.save_s
