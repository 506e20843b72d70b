"""Played workers: processes that load, find each other at the address of their generation, and train step after step.

They do what train/engine does as far as an agent can see it: each has all weights; a step needs every one of them; who
is asked to leave saves the step that it has; who loses another one fails, or stays and waits for its agent's word; who
is told of another group leaves this one, and takes its step with it; events.jsonl gets what they tell.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.sim.played import Life, Machine, Play
from train.cluster.node_status import Generation
from train.cluster.processes import Processes
from train.runlog import paths

if TYPE_CHECKING:
    from tests.sim.truth import Truth

JOIN_S, GIVE_UP_S = 15.0, 30.0
"""How long a worker waits for the others of its group, and for one that says nothing any more."""


@dataclass(eq=False)
class Trained:
    """What a node has of the run."""

    machine: Machine
    loads_s: float
    step_s: float
    saves_s: float
    """Into main memory, when asked to leave."""
    keeps_s: float
    """From there to the disk."""
    run: str = "r"
    kept: int = 0
    """The step of its newest checkpoint."""
    before: int = 0
    """The one before, as long as this one is not on the disk yet."""
    keeping_until: float = 0.0
    workers: list[Worker] = field(default_factory=list)
    fails: list[str] = field(default_factory=list)
    """What the next workers fail with as soon as they are loaded."""
    cannot_end: bool = False
    stays: bool = True
    """Whether its workers can, where the group changes."""
    cpu_s: float = 0.0
    cpu_at: float = 0.0

    @cached_property
    def log(self) -> Path:
        return Path(f"/played/{self.machine.name}/logs/runs/{self.run}/events.jsonl")

    def has_decided(self) -> None:
        """What a worker needs that loads before it is in a group."""
        decided = Path(f"/played/{self.machine.name}/models/checkpoints/{self.run}") / paths.DECIDED
        self.machine.changed[decided] = 1

    def tell(self, **event: object) -> None:
        machine = self.machine
        machine.changed[self.log] = machine.changed.get(self.log, 0) + 1
        if not machine.disk_is_full:
            before = machine.files.get(self.log, b"")
            line = json.dumps(event | {"time": machine.play.time}) + "\n"
            machine.files[self.log] = before[: before.rfind(b"\n") + 1] + line.encode()


class Group:
    """The workers that found each other at one address."""

    def __init__(self, training: Training, size: int) -> None:
        self.training, self.size = training, size
        self.workers: dict[int, Worker] = {}
        self.step, self.heard_at, self.is_over = -1, 0.0, False

    def join(self, worker: Worker) -> None:
        self.workers[worker.rank], worker.group = worker, self
        if len(self.workers) < self.size or any(one.is_gone_from(self) for one in self.workers.values()):
            return  # who waits for one that is gone gives up
        play = self.training.play
        self.step, self.heard_at = max(max(one.step, one.node.kept) for one in self.workers.values()), play.time
        self.training.truth.begins(self)
        for one in self.workers.values():
            one.step = self.step
            one.answer = (one.answer or b"0") if one.node.stays else b""
            one.node.has_decided()
            one.node.tell(event="start", weights=1e6)
        play.after(self.step_s, self.go_on)

    @property
    def step_s(self) -> float:
        return self.training.step_s([one.node for one in self.workers.values()])

    def go_on(self) -> None:
        """One step, if all of them can."""
        play, workers = self.training.play, list(self.workers.values())
        if self.is_over:
            return
        if gone := next((one for one in workers if one.is_gone_from(self)), None):
            self.loses(gone)
        elif not all(one.can_work for one in workers) or not self.all_linked():
            if play.time - self.heard_at > GIVE_UP_S:
                self.loses(next((one for one in workers if not one.can_work), workers[0]))
            else:
                play.after(0.2, self.go_on)
        else:
            self.step, self.heard_at = self.step + 1, play.time
            self.training.truth.steps(self)
            ends = self.step >= self.training.last_step
            for one in workers:
                one.step = self.step
                play.after(0.03 * play.dice.random(), one.tell_step, self.step, self.step_s, ends)
            if ends:
                self.is_over = True
            else:
                play.after(self.step_s, self.go_on)

    def all_linked(self) -> bool:
        machines = [one.node.machine for one in self.workers.values()]
        return all(self.training.play.reaches(a, b) for a in machines for b in machines if a is not b)

    def loses(self, gone: Worker) -> None:
        """Who can be told of it fails; who cannot waits until it gives up."""
        self.is_over = True
        play = self.training.play
        for one in self.workers.values():
            if one is not gone and not one.is_gone_from(self):
                told = gone.node.machine.is_on and play.reaches(gone.node.machine, one.node.machine)
                soon_s = 0.05 + 0.3 * play.dice.random() if told else GIVE_UP_S
                play.after(soon_s, one.loses, self, "gloo: connection closed by peer")


class Process:
    """What an agent asks of a worker: as train/cluster/processes.py has it."""

    is_halted = False

    def __init__(self, training: Training, node: Trained, life: Life) -> None:
        self.training, self.node, self.life = training, node, life
        training.pids += 1
        self.pid = training.pids
        self.code: int | None = None
        self.cause = self.answer = b""
        self.word = 0
        self.is_loaded = self.is_hung = self.leaves = False
        self.asked_at = 0.0

    def poll(self) -> int | None:
        return self.code

    def can_stay(self) -> bool:
        return bool(self.answer)

    def has_obeyed(self, number: int) -> bool:
        return self.answer == str(number).encode()

    def is_stopped(self) -> bool:
        return self.code is None and self.is_halted

    def waits_in_kernel(self) -> bool:
        return self.node.cannot_end


class Worker(Process):
    def __init__(self, training: Training, node: Trained, life: Life, env: Mapping[str, str]) -> None:
        super().__init__(training, node, life)
        self.group: Group | None = None
        self.step = -1
        self.waits = "RANK" not in env
        if not self.waits:
            self._takes(env, life.agent.generation.number)
        training.play.after(node.loads_s, self._loaded)

    def _takes(self, env: Mapping[str, str], number: int) -> None:
        """Its place in a group."""
        self.rank, self.size = int(env["RANK"]), int(env["WORLD_SIZE"])
        self.where, self.number = f"{env['MASTER_ADDR']}:{env['MASTER_PORT']}", number

    # -- what it does ----------------------------------------------------------------------------------------------

    @property
    def can_work(self) -> bool:
        return self.code is None and not (self.is_hung or self.is_halted) and self.node.machine.is_awake

    def _loaded(self) -> None:
        if self.code is not None or self.leaves:
            return
        if not self.can_work:
            self.training.play.after(0.5, self._loaded)
            return
        self.is_loaded = True
        if self.node.fails:
            self.fails("own", self.node.fails.pop())
        elif self.waits:
            self.answer = b"0"
            self.training.truth.ready_at[self.node.machine.name] = self.training.play.time
        else:
            self._meets()

    def _meets(self) -> None:
        group = self.training.groups.get(self.where)
        if group is None or group.is_over or group.step >= 0 or self.rank in group.workers:
            group = self.training.groups[self.where] = Group(self.training, self.size)
        self.training.play.after(JOIN_S, self._gives_up, group)
        group.join(self)

    def _gives_up(self, group: Group) -> None:
        if group.step < 0:
            group.is_over = True
            self.loses(group, "gloo connect: the others did not come")

    def is_gone_from(self, group: Group) -> bool:
        return self.code is not None or self.leaves or self.group is not group

    def loses(self, group: Group, message: str) -> None:
        if self.is_gone_from(group):
            return
        if not self.answer:
            self.fails("peer", message)
        elif not self.is_hung:
            facts = {"kind": "peer", "message": message, "word": int(self.answer)}
            self.group, self.cause = None, json.dumps(facts).encode()

    def tell_step(self, step: int, step_s: float, ends: bool) -> None:
        if self.code is not None or not self.node.machine.is_on:
            return
        self.node.tell(event="step", step=step, step_s=step_s, loss=2.0)
        if step % 10 == 0 and not self.node.machine.disk_is_full:
            self.node.kept = max(self.node.kept, step)
            self.node.tell(event="checkpoint", step=step, seconds=0.1)
        if ends:
            self.node.kept = step
            self.node.tell(event="done", step=step)
            self.ends(0)

    def fails(self, kind: str, message: str) -> None:
        if self.code is None and not self.is_hung and not self.leaves:
            self.answer = b""
            self.cause = json.dumps({"kind": kind, "message": message}).encode()
            self._save()
            self.ends(1)

    def _save(self) -> None:
        node = self.node
        if node.machine.disk_is_full:
            self.training.truth.loses(node.machine.name, node.kept)
        elif self.step > node.kept:
            node.before, node.kept = node.kept, self.step
            node.keeping_until = self.training.play.time + node.keeps_s

    def ends(self, code: int) -> None:
        if self.code is None:
            self.code = code

    # -- what its agent asks ---------------------------------------------------------------------------------------

    def reported(self) -> bytes:
        """What it says of a group before this one does not count."""
        word = json.loads(self.cause).get("word") if self.cause else None
        return b"" if word is not None and word < self.word else self.cause

    def tell(self, number: int, env: Mapping[str, str]) -> None:
        self.cause, self.word = b"", number
        soon_s = 0.02 + self.node.step_s * self.training.play.dice.random()
        self.training.play.after(soon_s, self._obeys, number, dict(env), self.life.agent.generation)

    def _obeys(self, number: int, env: Mapping[str, str], generation: Generation | None) -> None:
        if self.code is not None or self.leaves or not self.answer or number != self.word:
            return
        if not self.can_work:
            self.training.play.after(0.2, self._obeys, number, env, generation)
            return
        self.group, self.answer = None, str(number).encode()
        if generation:
            self._takes(env, generation.number)
            self._meets()

    def send(self, number: signal.Signals) -> None:
        if self.code is not None:
            return
        if number == signal.SIGKILL:
            if not self.node.cannot_end:
                self.training.truth.killed(self)
                self.ends(-signal.SIGKILL)
        elif self.can_work and not self.leaves:
            self.leaves, self.asked_at = True, self.training.play.time
            self.training.play.after(self.node.saves_s if self.step >= 0 else 0.02, self._left)

    def _left(self) -> None:
        if self.code is None:
            if not self.node.machine.is_awake:
                self.training.play.after(0.2, self._left)
                return
            self._save()
            self.ends(143)


class Training:
    """All groups of a story."""

    def __init__(self, play: Play, truth: Truth) -> None:
        self.play, self.truth = play, truth
        self.groups: dict[str, Group] = {}
        self.nodes: dict[str, Trained] = {}
        self.last_step = 1 << 30
        self.pids = 100

    def step_s(self, nodes: Sequence[Trained]) -> float:
        return max(node.step_s for node in nodes) * (0.9 + 0.2 * self.play.dice.random())

    def worker(self, node: Trained, life: Life, env: Mapping[str, str]) -> Worker:
        return Worker(self, node, life, env)

    def end_workers(self, name: str) -> None:
        """As the kernel does with those of an agent that is gone."""
        node = self.nodes[name]
        for worker in node.workers:
            if worker.code is None and not node.cannot_end:
                worker.ends(-signal.SIGKILL)
                self.truth.loses(name, node.kept)

    def power_is_gone(self, name: str) -> None:
        node = self.nodes[name]
        if self.play.time < node.keeping_until:
            node.kept, node.keeping_until = node.before, 0.0
        node.cannot_end = False
        self.end_workers(name)
        self.truth.loses(name, node.kept)


class PlayedProcesses(Processes):
    def __init__(self, training: Training, node: Trained, life: Life) -> None:
        self.training, self.node, self.life = training, node, life

    def warm(self) -> None:
        pass

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> Worker:  # type: ignore[override]
        self.training.truth.starts(self.node)
        worker = self.training.worker(self.node, self.life, env)
        self.node.workers = [one for one in self.node.workers if one.code is None] + [worker]
        return worker

    def pace(self) -> float:
        return 1.0

    def used_by(self, pids: Collection[int]) -> tuple[float, int]:
        node, now = self.node, self.training.play.time
        if any(one.pid in pids and not one.is_loaded and one.can_work for one in node.workers):
            node.cpu_s += now - node.cpu_at
        node.cpu_at = now
        return node.cpu_s, 0


class PlayedStage:
    """Where a worker that leaves has saved, until it is on the disk."""

    def __init__(self, node: Trained) -> None:
        self.node = node

    def open(self) -> str:
        return "stage"

    def has_room(self, size_bytes: float) -> bool:
        return True

    def is_kept(self) -> bool:
        return self.node.machine.play.time >= self.node.keeping_until

    def close(self) -> None:
        pass
