"""A storm: unequal machines for half an hour, a fault every half minute. How much of what they could compute reaches
the curve, and where the rest goes.

Agents, their decisions, heartbeats and what they ask of workers are real, as in each story, and what must hold always
(truth.py) must hold here. Played are time, links, machines and workers: a step takes as long as its rows at the speeds
of all that are in it, as shares that follow the speeds make it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

from tests.sim.cluster import Cluster
from tests.sim.faults import Fault
from tests.sim.played import Life
from tests.sim.story import Story
from tests.sim.trainer import Group, Trained, Training, Worker
from tests.sim.truth import Truth
from train.cluster.node_status import Generation

SIZE, STORM_S, STEP_S = 16, 1800.0, 1.0
"""STEP_S: of a step of all machines."""
SPEEDS = (8.0, 4.0, 4.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Rows a second of each machine; who has which is drawn."""
EACH = 13
LASTS = {
    "worker dies": (0.0, 0.0),
    "agent killed": (1.0, 4.0),
    "power cut": (30.0, 60.0),
    "cable out": (5.0, 30.0),
    "sleep": (5.0, 30.0),
}
"""How long each kind lasts; so many of each come."""
AWAY = ("power cut", "cable out", "sleep")
"""While these last a machine computes nothing for anybody."""
LOADS_S = (4.0, 8.0)
"""A worker from its start until it has loaded."""
TOGETHER_S = 60.0

CURVE, OFF, OUTSIDE = "on the curve", "capacity that was away", "back, and loading or not let in yet"
TWICE, NOTICING, AGREEING = "steps computed twice", "noticing", "agreeing and starting again"


@dataclass(frozen=True)
class Step:
    since: float
    until: float
    members: frozenset[str]


@dataclass
class Diary:
    """What there is to know of a storm, by played time."""

    steps: list[Step] = field(default_factory=list)
    published: list[float] = field(default_factory=list)
    """When a new group was decided on."""
    hits: list[float] = field(default_factory=list)
    away: list[tuple[float, float, str]] = field(default_factory=list)
    """From when to when which machine could not compute."""

    def spent(self, speeds: Mapping[str, float], since: float, until: float) -> dict[str, float]:
        """Where the rows that all machines could have computed went. In a gap between two steps the first part belongs
        to a step that was broken off, the next, from a fault on, to noticing it, and the rest, from a new group on, to
        agreeing and starting again."""
        found = dict.fromkeys((CURVE, OFF, OUTSIDE, TWICE, NOTICING, AGREEING), 0.0)
        times = [at for step in self.steps for at in (step.since, step.until)] + [*self.published, *self.hits]
        times += [at for begins, ends, _ in self.away for at in (begins, ends)]
        cuts = sorted({since, until, *(at for at in times if since < at < until)})
        place, last_end = 0, since
        for a, b in pairwise(cuts):
            while place < len(self.steps) and self.steps[place].until <= a:
                last_end, place = self.steps[place].until, place + 1
            step = self.steps[place] if place < len(self.steps) and self.steps[place].since <= a else None
            members = step.members if step else frozenset()
            off = {name for begins, ends, name in self.away if begins <= a < ends} - members
            seconds, there = b - a, sum(speeds.values()) - together(speeds, off)
            found[OFF] += seconds * together(speeds, off)
            if step:
                found[CURVE] += seconds * together(speeds, members)
                found[OUTSIDE] += seconds * (there - together(speeds, members))
            elif any(last_end <= at <= a for at in self.published):
                found[AGREEING] += seconds * there
            elif any(last_end <= at <= a for at in self.hits):
                found[NOTICING] += seconds * there
            else:
                found[TWICE] += seconds * there
        return found


def together(speeds: Mapping[str, float], names: Collection[str]) -> float:
    return sum(speeds[name] for name in sorted(names))


@dataclass(frozen=True)
class StormStory(Story):
    KIND = "storm"

    @classmethod
    def of(cls, seed: int) -> StormStory:
        """The kinds come in an order that is drawn, and no machine is hit while another fault of it lasts."""
        dice = Random(f"storm {seed}")
        kinds = [kind for kind in LASTS for _ in range(EACH)]
        dice.shuffle(kinds)
        every_s, faults = (STORM_S - 60) / len(kinds), list[Fault]()
        for i, kind in enumerate(kinds):
            at = round(10 + (i + dice.random()) * every_s, 2)
            lasting = {fault.who for fault in faults if fault.over_at > at}
            who = dice.choice([one for one in range(SIZE) if one not in lasting])
            least_s, most_s = LASTS[kind]
            faults.append(
                Fault(kind, at, round(least_s + (most_s - least_s) * dice.random(), 2), who, (who + 1) % SIZE)
            )
        return cls(seed, SIZE, tuple(faults))

    def world(self) -> PlayedStorm:
        return PlayedStorm(self)


class StormWorker(Worker):
    """It hears of another group where it exchanges, as worker_orders.py has it: at once where it waits for one that is
    lost; else its step is computed to the end and thrown away."""

    def tell(self, number: int, env: Mapping[str, str]) -> None:
        self.cause, self.word = b"", number
        play, group = self.training.play, self.group
        computes = group is not None and not group.is_over and group.step >= 0
        left_s = group.heard_at + group.step_s - play.time if group and computes else 0.0
        play.after(max(0.02, left_s - 0.01), self._obeys, number, dict(env), self.life.agent.generation)


class StormTraining(Training):
    def __init__(self, cluster: PlayedStorm, truth: Truth, speeds: Mapping[str, float]) -> None:
        super().__init__(cluster.play, truth)
        self.speeds = speeds

    def worker(self, node: Trained, life: Life, env: Mapping[str, str]) -> Worker:
        return StormWorker(self, node, life, env)

    def step_s(self, nodes: Sequence[Trained]) -> float:
        return STEP_S * sum(self.speeds.values()) / together(self.speeds, {node.machine.name for node in nodes})


class StormTruth(Truth):
    diary: Diary

    def steps(self, group: Group) -> None:
        super().steps(group)
        self.diary.steps.append(Step(self.play.time - group.step_s, self.play.time, self.members))

    def adopts(self, name: str, new: Generation, old: Generation | None) -> None:
        before = self.published
        super().adopts(name, new, old)
        if self.published > before:
            self.diary.published.append(self.play.time)


class PlayedStorm(Cluster):
    story: StormStory
    lasts_s = STORM_S

    def __init__(self, story: StormStory) -> None:
        super().__init__(story)
        dice = Random(f"speeds {story.seed}")
        self.speeds = dict(zip(self.order, dice.sample(SPEEDS, len(self.order)), strict=True))
        self.truth = truth = StormTruth(self.play, order=self.order)
        truth.diary = self.diary = Diary()
        nodes, self.training = self.training.nodes, StormTraining(self, truth, self.speeds)
        self.training.nodes = nodes
        least_s, most_s = LOADS_S
        for node in nodes.values():
            node.step_s, node.stays = STEP_S, True
            node.loads_s = least_s + (most_s - least_s) * dice.random()
        self.since, self.first = 0.0, 0

    def run(self) -> None:
        self.until(lambda: self.truth.members == frozenset(self.order), TOGETHER_S, self.states)
        self.since, self.first = self.play.time, self.truth.step
        self.befall()
        self.play.run(self.since + self.lasts_s)
        for machine in self.machines.values():
            self.truth.check_members(machine)

    def _befalls(self, fault: Fault) -> None:
        self.diary.hits.append(self.play.time)
        if fault.kind in AWAY:
            self.diary.away.append((self.play.time, self.play.time + fault.lasts_s, self.order[fault.who]))
        super()._befalls(fault)

    def spent(self) -> dict[str, float]:
        return self.diary.spent(self.speeds, self.since, self.since + self.lasts_s)


class Calm(PlayedStorm):
    """The same machines without a fault: a part of the time shows as much as all of it."""

    lasts_s = STORM_S / 10
