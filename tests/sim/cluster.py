"""Played machines with real agents, and all that can be done to them."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.sim.faults import FAILS, HANGS, KINDS, OWN, Fault
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
from tests.sim.story import Story
from tests.sim.trainer import PlayedProcesses, PlayedStage, Trained, Training
from tests.sim.truth import Truth
from train.cluster.agent import FAILED_ITSELF, Agent
from train.cluster.agent_surroundings import Outside
from train.cluster.may_run_here import OWN_FAILURES
from train.cluster.membership import Propose
from train.cluster.node_status import Generation
from train.cluster.queue_gossip import QueueKeeper
from train.cluster.start_workers import LocalWorkers
from train.cluster.step_aside import Aside
from train.cluster.timing import TIMING
from train.plan.launch.cluster_config import ClusterConfig, Member
from train.plan.placement.pipeline_split import Room
from train.plan.settings.read_settings import load_config
from train.runlog import paths
from train.runlog.queue_order import launch_of
from train.runlog.secret import Secret

WAIT_ALL_S = 20
"""How long a machine waits for those that do not answer, before a group begins without them."""
SETTINGS = load_config({"run": "r", "home": "/played"})


class Watched(Agent):
    """The real agent, whose generations are seen by the truth."""

    truth: Truth

    def _adopt(self, new: Generation, reason: str, ours: Propose | None = None) -> None:
        self.truth.adopts(self.cluster.node, new, self.generation)
        super()._adopt(new, reason, ours)


@dataclass(eq=False)
class Cluster(ABC):
    story: Story
    layers: int = 0
    """Of a model that is cut: each machine holds two. 0: each holds all of it."""
    has_address: bool = False
    """Of somebody who is told what happens."""
    play: Play = field(init=False)
    truth: Truth = field(init=False)
    training: Training = field(init=False)
    cuts: list[set[tuple[str, str]]] = field(default_factory=list)
    ended: dict[str, int] = field(default_factory=dict)
    """Agents whose run is over, and their status."""
    notices: list[str] = field(default_factory=list)
    lasting: set[object] = field(default_factory=set)
    """What is not over yet."""

    def __post_init__(self) -> None:
        self.seed, size = self.story.seed, self.story.size
        self.play = Play(self.seed)
        self.order = tuple(f"n{i}" for i in range(size))
        room = Room(self.layers, 10**9, dict.fromkeys(self.order, 2)) if self.layers else None
        self.truth = Truth(self.play, order=self.order, room=room)
        self.training = Training(self.play, self.truth)
        self.closed = self.play.closed
        dice = self.play.dice
        for i, name in enumerate(self.order):
            machine = self.play.machines[name] = Machine(self.play, name, f"10.0.0.{i + 1}")
            self.training.nodes[name] = self.trained(machine, dice, "r")
            if self.has_address:
                machine.files[SETTINGS.home_folder.joinpath(name, paths.SECRET)] = (
                    Secret(messages="somebody").to_json().encode()
                )
            self.play.after(2 * dice.random(), self.start_agent, name)

    def trained(self, machine: Machine, dice: Random, run: str) -> Trained:
        return Trained(
            machine,
            loads_s=0.5 + 2 * dice.random(),
            step_s=0.3 + 0.3 * dice.random(),
            saves_s=2.5 * dice.random() ** 2,
            keeps_s=0.5 * dice.random(),
            run=run,
            stays=Random(f"stays {self.seed} {machine.name}").random() < 0.7,
        )

    @property
    def machines(self) -> dict[str, Machine]:
        return self.play.machines

    # -- the story ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def run(self) -> None:
        """All of it, to its end; Broken where something that must hold does not."""

    def counted(self) -> dict[str, float]:
        return {"faults": len(self.story.faults)}

    def befall(self) -> float:
        """From now on the faults come. Returns when the last one is over."""
        began = self.play.time
        for fault in self.story.faults:
            self.play.at(began + fault.at, self._befalls, fault)
        return began + max((fault.over_at for fault in self.story.faults), default=0.0)

    def _befalls(self, fault: Fault) -> None:
        self.play.note(f"FAULT  {fault}")
        self.lasting.add(fault)
        self.stirs()
        over = KINDS[fault.kind][0](self, fault, self.order[fault.who], self.order[fault.other])
        self.play.after(fault.over_at - fault.at, self._over, fault, over)

    def _over(self, fault: Fault, over: object) -> None:
        self.play.note(f"over   {fault}")
        self.lasting.discard(fault)
        if callable(over):
            over()
        self.stirs()

    def delays_s(self, after_hang_s: float, after_failures_s: float, own: Mapping[str, int] = OWN) -> float:
        """By how much the faults may put off what all wait for. `own`: the failures of a node's own in each kind."""
        kinds = {fault.kind for fault in self.story.faults}
        count = Counter(fault.who for fault in self.story.faults for _ in range(own.get(fault.kind, 0)))
        rests = max(0, max(count.values(), default=0) + 1 - OWN_FAILURES)
        hung_s, failed_s = after_hang_s * bool(kinds & HANGS), after_failures_s * bool(kinds & FAILS)
        return hung_s + failed_s + sum(TIMING.again_s[:rests])

    # -- agents ------------------------------------------------------------------------------------------------------

    def start_agent(self, name: str) -> None:
        """As systemd does."""
        machine = self.machines[name]
        lives = machine.life is not None and not machine.life.is_over
        stays = lives and not (machine.life.agent and machine.life.agent.stop_signal)
        if not machine.is_on or stays or name in self.ended:
            return
        if lives or machine.asleep_since is not None:
            self.play.after(0.5, self.start_agent, name)
            return
        machine.life = life = Life(machine)
        Task(life, self._live, (life,))

    def _live(self, life: Life) -> None:
        keeper = self.keeper(life, "secret")
        agent = self.agent(life, keeper, self.training, "r", "secret")
        self._has_ended(life, agent.run())

    def keeper(self, life: Life, token: str) -> QueueKeeper:
        name = life.machine.name
        outside = Outside(
            clock=PlayedClock(life),
            network=PlayedNetwork(life),
            disk=PlayedDisk(life.machine),
            signals=PlayedSignals(life),
            say=self.play.note,
        )
        return QueueKeeper(SETTINGS.home_folder / name, name, launch_of(token), outside)

    def agent(self, life: Life, keeper: QueueKeeper, training: Training, run: str, token: str) -> Agent:
        name, truth, node = life.machine.name, training.truth, training.nodes[life.machine.name]
        cluster = ClusterConfig(
            run=run,
            node=name,
            token=token,
            nodes=tuple(Member(name=one, address=self.machines[one].address) for one in truth.order),
            pipe=truth.room,
        )
        settings = dataclasses.replace(SETTINGS, home=str(SETTINGS.home_folder / name), run=run)
        outside = dataclasses.replace(keeper.outside, processes=PlayedProcesses(training, node, life))
        workers = LocalWorkers(cluster, settings, [], outside, PlayedStage(node))  # type: ignore[arg-type]
        send = self._sends(life)
        agent = Watched(
            cluster, settings, workers, outside, keeper, gpus=SimpleNamespace(now=[]), wait_s=WAIT_ALL_S, send=send
        )
        agent.truth, life.agent = truth, agent
        agent.stepping.sources = [lambda *_: Aside("paused", "paused") if life.machine.paused else None]
        return agent

    def _sends(self, life: Life) -> Callable[[str, Any], str]:
        def send(_: str, notice: Any) -> str:
            life.agent.outside.clock.sleep(0.3)
            self.notices.append(notice.key)
            return ""

        return send

    def _has_ended(self, life: Life, status: int) -> None:
        name = life.machine.name
        self.play.note(f"{name} ends with {status}")
        life.is_over = True
        self.training.end_workers(name)
        if status == FAILED_ITSELF:
            self.truth.breaks(f"the agent of {name} failed itself")
        if self.is_over_for(life, status):
            self.ended[name] = status
        self.play.after(0.0, life.end)

    def is_over_for(self, life: Life, status: int) -> bool:
        """Whether systemd has nothing more to start."""
        if status == 1:
            self.truth.breaks(f"the run was given up: {life.agent.reason}")
        return status == 0

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
                life.wake()

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
            machine.slept_s += machine.woke_at - since
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
        self.stirs()
        self.cuts.append(ways)
        self.play.cut = set().union(*self.cuts)

    def plug(self, ways: set[tuple[str, str]]) -> None:
        self.stirs()
        if ways in self.cuts:
            self.cuts.remove(ways)
            self.play.cut = set().union(*self.cuts)

    # -- what it looks like ------------------------------------------------------------------------------------------

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

    def close(self) -> None:
        for machine in self.machines.values():
            if machine.life:
                machine.life.end()

    def states(self) -> str:
        said = []
        for name, machine in self.machines.items():
            agent = machine.life.agent if machine.life else None
            what = "no agent" if agent is None or machine.life.is_over else f"{agent._state()}: {agent.reason}"
            said.append(f"{name} {what if machine.is_on else 'off'}")
        return "; ".join(said)
