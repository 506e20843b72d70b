"""One story: real agents start, faults come and go, and in the end all that are whole train together."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.sim.faults import KINDS, Fault, drawn
from tests.sim.played import (
    Life,
    Machine,
    Play,
    PlayedClock,
    PlayedDisk,
    PlayedNetwork,
    PlayedSignals,
    Task,
)  # fmt: skip
from tests.sim.trainer import PlayedProcesses, PlayedStage, Trained, Training
from tests.sim.truth import Broken, Truth
from train.cluster.agent import FAILED_ITSELF, Agent
from train.cluster.fitness import OWN_FAILURES
from train.cluster.membership import Generation, majority
from train.cluster.step_aside import Aside
from train.cluster.timing import TIMING
from train.cluster.workers import LocalWorkers
from train.cluster.world import World
from train.plan.cluster_config import ClusterConfig, Member
from train.plan.config import load_config
from train.plan.stages import Room
from train.runlog import paths

FAULTS_WITHIN_S = 11.0
TOGETHER_S = 20.0
"""After the last fault is over: until all that are whole train in one group. A worker that hung is seen by its silence
only, and who comes and goes is held: those add to it."""
AFTER_HANG_S, AFTER_FAILURES_S = 60.0, 20.0
ENDED_S = 15.0
SETTLED_S, STILL_S = 14.0, 6.0
ENDINGS = ("whole", "whole", "off", "paused", "cut off", "links")
SETTINGS = load_config({"run": "r", "home": "/played"})


@dataclass(frozen=True)
class Story:
    seed: int
    size: int
    faults: tuple[Fault, ...]
    ending: str = "whole"
    """What is left in the end, of those who are `out`: see Cluster.endings."""
    out: tuple[int, ...] = ()
    layers: int = 0
    """Of a model that is cut: each machine holds two. 0: each holds all of it."""
    ends: bool = False
    """The run is over in the end, and somebody is told."""

    @classmethod
    def of(cls, seed: int) -> Story:
        dice = Random(seed)
        size = dice.choice((3, 3, 3, 3, 3, 3, 4, 5)) if seed % 100 else dice.choice((2, 8, 12, 16))
        faults = drawn(dice, size, dice.randrange(1, 7), FAULTS_WITHIN_S)
        ending, out = dice.choice(ENDINGS), dice.sample(range(size), dice.randrange(1, 1 + (size + 1) // 2))
        layers = dice.choice((0, 0, 0, 2 * size - 2))
        return cls(seed, size, tuple(faults), ending, tuple(sorted(out)), layers, dice.random() < 0.3)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Story:
        facts = json.loads(text)
        return cls(**facts | {"faults": tuple(Fault(**fault) for fault in facts["faults"]), "out": tuple(facts["out"])})


class Watched(Agent):
    """The real agent, whose generations are seen by the truth."""

    truth: Truth

    def _adopt(self, new: Generation, reason: str, change: str = "") -> None:
        self.truth.adopts(self.cluster.node, new, self.generation)
        super()._adopt(new, reason, change)


@dataclass(eq=False)
class Cluster:
    """The machines of a story, and all that is done to them."""

    story: Story
    play: Play = field(init=False)
    truth: Truth = field(init=False)
    training: Training = field(init=False)
    cuts: list[set[tuple[str, str]]] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    """Agents whose run is over, and their status."""
    told: list[str] = field(default_factory=list)
    lasting: set[Fault] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.play = Play(self.story.seed)
        self.order = tuple(f"n{i}" for i in range(self.story.size))
        room = Room(self.story.layers, 10**9, dict.fromkeys(self.order, 2)) if self.story.layers else None
        self.truth = Truth(self.play, order=self.order, room=room)
        self.training = Training(self.play, self.truth)
        self.closed = self.play.closed
        dice = self.play.dice
        for i, name in enumerate(self.order):
            machine = self.play.machines[name] = Machine(self.play, name, f"10.0.0.{i + 1}")
            self.training.nodes[name] = Trained(
                machine,
                loads_s=0.5 + 2 * dice.random(),
                step_s=0.3 + 0.3 * dice.random(),
                saves_s=2.5 * dice.random() ** 2,
                keeps_s=0.5 * dice.random(),
            )
            if self.story.ends:
                machine.files[SETTINGS.home_folder.joinpath(name, paths.NOTIFY)] = b"somebody"
            self.play.after(2 * dice.random(), self.start_agent, name)

    @property
    def machines(self) -> dict[str, Machine]:
        return self.play.machines

    # -- agents ------------------------------------------------------------------------------------------------------

    def start_agent(self, name: str) -> None:
        """As systemd does."""
        machine = self.machines[name]
        lives = machine.life is not None and not machine.life.is_over
        if not machine.is_on or (lives and not machine.life.agent.stop_signal) or name in self.ended:
            return
        if lives or machine.asleep_since is not None:
            self.play.after(0.5, self.start_agent, name)
            return
        machine.life = life = Life(machine)
        Task(life, self._live, (life,))

    def _live(self, life: Life) -> None:
        name, node = life.machine.name, self.training.nodes[life.machine.name]
        cluster = ClusterConfig(
            run="r",
            node=name,
            token="secret",
            nodes=tuple(Member(name=one.name, address=one.address) for one in self.machines.values()),
            pipe=self.truth.room,
        )
        settings = dataclasses.replace(SETTINGS, home=str(SETTINGS.home_folder / name))
        world = World(
            clock=PlayedClock(life),
            network=PlayedNetwork(life),
            disk=PlayedDisk(life.machine),
            processes=PlayedProcesses(self.training, node, life),
            signals=PlayedSignals(life),
            say=self.play.note,
        )
        workers = LocalWorkers(cluster, settings, [], world, PlayedStage(node))  # type: ignore[arg-type]
        send = self._sends(life)
        agent = Watched(cluster, settings, workers, world, gpus=SimpleNamespace(now=[]), wait_s=20, send=send)
        agent.truth, life.agent = self.truth, agent
        agent.stepping.sources = [lambda *_: Aside("paused") if life.machine.paused else None]
        status = agent.run()
        self._has_ended(life, status)

    def _sends(self, life: Life) -> Callable[[str, Any], str]:
        def send(_: str, notice: Any) -> str:
            life.agent.world.clock.sleep(0.3)
            self.told.append(notice.key)
            return ""

        return send

    def _has_ended(self, life: Life, status: int) -> None:
        name = life.machine.name
        self.play.note(f"{name} ends with {status}")
        life.is_over = True
        self.training.end_workers(name)
        if status == FAILED_ITSELF:
            self.truth.breaks(f"the agent of {name} failed itself")
        if status in (0, 1):
            self.ended[name] = status
        if status == 1:
            self.truth.breaks(f"the run was given up: {life.agent.reason}")
        self.play.after(0.0, life.end)

    def kill_agent(self, name: str) -> None:
        life = self.machines[name].life
        if life and not life.is_over:
            self.training.end_workers(name)
            life.end()
            self.play.after(3.0, self.start_agent, name)

    def ask_to_end(self, name: str) -> None:
        life = self.machines[name].life
        if life and not life.is_over and life.to_stop:
            life.to_stop(15, None)

    def freeze(self, name: str) -> None:
        life = self.machines[name].life
        if life and not life.is_over and life.frozen_since is None:
            life.frozen_since = self.play.time

    def thaw(self, name: str) -> None:
        life = self.machines[name].life
        if life and life.frozen_since is not None:
            life.frozen_since = None
            if not life.is_held:
                life.proceed()

    # -- machines ----------------------------------------------------------------------------------------------------

    def power_off(self, name: str) -> None:
        machine = self.machines[name]
        if machine.is_on:
            self.stirs()
            machine.is_on, machine.asleep_since = False, None
            self.training.power_is_gone(name)
            if machine.life:
                machine.life.end()
            for file in [file for file in machine.files if file.name == "members.jsonl"]:
                torn = self.play.dice.randrange(40) if self.play.dice.random() < 0.3 else 0
                machine.files[file] = machine.files[file][: len(machine.files[file]) - torn]

    def power_on(self, name: str) -> None:
        machine = self.machines[name]
        if not machine.is_on:
            machine.is_on, machine.woke_at = True, self.play.time
            self.play.after(1 + 2 * self.play.dice.random(), self.start_agent, name)

    def fall_asleep(self, name: str) -> None:
        machine = self.machines[name]
        if machine.is_on and machine.asleep_since is None:
            machine.asleep_since = self.play.time

    def wake(self, name: str) -> None:
        machine = self.machines[name]
        if machine.asleep_since is not None:
            since, machine.asleep_since, machine.woke_at = machine.asleep_since, None, self.play.time
            if machine.life and not machine.life.is_held:
                machine.life.wake(since)

    def kernel_lets_go(self, name: str) -> None:
        node = self.training.nodes[name]
        if node.cannot_end:
            node.cannot_end = False
            hung = [worker for worker in node.workers if worker.code is None and worker.is_hung]
            self.truth.loses(name, node.kept)
            for worker in hung:
                worker.ends(-9)

    # -- links -------------------------------------------------------------------------------------------------------

    def cut(self, ways: set[tuple[str, str]]) -> None:
        self.cuts.append(ways)
        self.play.cut = set().union(*self.cuts)

    def plug(self, ways: set[tuple[str, str]]) -> None:
        if ways in self.cuts:
            self.cuts.remove(ways)
            self.play.cut = set().union(*self.cuts)

    # -- the story ---------------------------------------------------------------------------------------------------

    def begin(self, fault: Fault) -> None:
        self.play.note(f"FAULT  {fault}")
        self.lasting.add(fault)
        self.stirs()
        over = KINDS[fault.kind][0](self, fault, self.order[fault.who], self.order[fault.other])
        lasts_s = over_s(fault) - fault.at
        self.play.after(lasts_s, self._over, fault, over if callable(over) else lambda: None)

    def _over(self, fault: Fault, over: Callable[[], object]) -> None:
        self.play.note(f"over   {fault}")
        self.lasting.discard(fault)
        over()
        self.stirs()

    def stirs(self) -> None:
        self.truth.calm_since = 1e9 if self.lasting else self.play.time

    def agents(self, names: Iterable[str]) -> list[Agent]:
        return [life.agent for name in names if (life := self.machines[name].life)]

    def until(self, holds: Callable[[], bool], limit_s: float, trouble: Callable[[], str]) -> None:
        end = self.play.time + limit_s
        while not holds():
            if self.play.time >= end:
                self.truth.breaks(trouble())
            self.play.run(min(end, self.play.time + 0.25))

    def states(self) -> str:
        said = []
        for name, machine in self.machines.items():
            agent = machine.life.agent if machine.life else None
            what = "no agent" if agent is None or machine.life.is_over else f"{agent._state()}: {agent.reason}"
            said.append(f"{name} {what if machine.is_on else 'off'}")
        return "; ".join(said)

    def run(self) -> None:
        story, play = self.story, self.play
        self.train_or_wait(self.order)
        began = play.time
        for fault in story.faults:
            play.at(began + fault.at, self.begin, fault)
        lasts_s = max((over_s(fault) for fault in story.faults), default=0.0)
        play.run(began + lasts_s + 1.0)
        self.whole_again()
        if story.ends:
            self._the_run_ends()
        for machine in self.machines.values():
            self.truth.check_members(machine)

    def whole_again(self) -> None:
        out = [self.order[i] for i in self.story.out]
        rest = [name for name in self.order if name not in out]
        across = {way for one in out for other in rest for way in ((one, other), (other, one))}
        match self.story.ending:
            case "off":
                for name in out:
                    self.power_off(name)
                self.train_or_wait(rest)
                for name in out:
                    self.power_on(name)
            case "paused":
                for name in out:
                    self.machines[name].paused = True
                self.train_or_wait(rest)
                for name in out:
                    self.machines[name].paused = False
            case "cut off":
                self.cut(across)
                self.train_or_wait(*((out, rest) if self.truth.can_train(out) else (rest, out)))
                self.plug(across)
            case "links":
                some = {way for way in across if self.play.dice.random() < 0.4}
                self.cut(some)
                self._no_thrash()
                self.plug(some)
        self.stirs()
        self.play.run(self.play.time + 1.0)
        self.train_or_wait(self.order)

    def limit_s(self, names: Iterable[str]) -> float:
        kinds = {fault.kind for fault in self.story.faults}
        own = Counter(fault.who for fault in self.story.faults for _ in range(OWN.get(fault.kind, 0)))
        rests = max(0, max(own.values(), default=0) + 1 - OWN_FAILURES)
        limit_s = TOGETHER_S + max(map(self.truth.may_be_held_s, names)) + sum(TIMING.again_s[:rests])
        return limit_s + AFTER_HANG_S * bool(kinds & HANGS) + AFTER_FAILURES_S * bool(kinds & FAILS)

    def train_or_wait(self, names: Sequence[str], others: Sequence[str] = ()) -> None:
        """These train together if they can; whoever cannot runs no workers."""
        self.stirs()
        since, waits = self.play.time, [*others]
        if self.truth.can_train(names):
            limit_s = self.limit_s(names)
            self.until(
                lambda: self.truth.stepped_at > since and self.truth.members == frozenset(names),
                limit_s,
                lambda: f"{', '.join(names)} are whole, and do not train within {limit_s:.0f} s: {self.states()}",
            )
        else:
            waits += names
            self._says_what_is_missing(names)
        self.until(
            lambda: not any(agent.generation for agent in self.agents(waits)),
            STILL_S,
            lambda: f"{', '.join(waits)} cannot train, and some try to: {self.states()}",
        )

    def _says_what_is_missing(self, names: Sequence[str]) -> None:
        room = self.truth.room
        if room and majority(names, self.order):
            word = f"{room.missing(names)}.0 GB are missing, waiting for "
            self.until(
                lambda: all(word in agent.reason for agent in self.agents(names)),
                TOGETHER_S,
                lambda: f"{word}: not said by all of {', '.join(names)}: {self.states()}",
            )

    def _no_thrash(self) -> None:
        """Whatever links are cut: after a while the groups stay as they are."""
        self.play.run(self.play.time + SETTLED_S)
        before, steps = self.truth.published, self.truth.steps_made
        self.play.run(self.play.time + STILL_S)
        if self.truth.published != before:
            self.truth.breaks(f"links stay cut, and groups still change: {self.states()}")
        if self.truth.steps_made == steps and any(agent.generation for agent in self.agents(self.order)):
            self.truth.breaks(f"links stay cut, and a group makes no step: {self.states()}")

    def _the_run_ends(self) -> None:
        whole = list(self.order)
        self.training.last_step = self.truth.step + 3
        self.until(
            lambda: all(self.ended.get(name) == 0 for name in whole),
            ENDED_S,
            lambda: f"the run is over, and not all have ended within {ENDED_S:.0f} s: {self.states()}",
        )
        if self.told.count("done") != 1:
            self.truth.breaks(f"the end was told {self.told.count('done')} times")


OWN = {"worker dies": 1, "worker fails": 1, "next workers fail": 2, "worker cannot be ended": 1}
"""How many failures of its own each is: after three in a row a node rests."""
HANGS = {"worker hangs", "worker cannot be ended", "worker stopped"}
FAILS = {"worker dies", "worker fails", "next workers fail", "slow start", "slow save"}


def over_s(fault: Fault) -> float:
    return fault.at + (3 * (7 + fault.lasts_s) if fault.kind == "comes and goes" else fault.lasts_s)


@dataclass(frozen=True)
class Told:
    """How a story went."""

    broken: str
    """The invariant; empty where all held."""
    journal: list[str]
    steps: int
    played_s: float


def play(story: Story) -> Told:
    cluster = Cluster(story)
    broken = ""
    try:
        cluster.run()
    except Broken as error:
        broken = str(error)
    finally:
        for machine in cluster.machines.values():
            if machine.life:
                machine.life.end()
    return Told(broken, cluster.play.journal, cluster.truth.steps_made, cluster.play.time)
