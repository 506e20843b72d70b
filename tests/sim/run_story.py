"""Stories of a run: real agents start, faults come and go, and in the end all that are whole train together."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from tests.sim.cluster import WAIT_ALL_S, Cluster
from tests.sim.faults import HANGS, drawn
from tests.sim.story import Story
from tests.sim.stranger import Stranger
from train.cluster.membership import majority

FAULTS_WITHIN_S = 11.0
TOGETHER_S = 20.0
"""After the last fault is over: until all that are whole train in one group. A worker that hung is seen by its silence
only, and who comes and goes is held: those add to it."""
AFTER_HANG_S, AFTER_FAILURES_S = 60.0, 20.0
ENDED_S = 15.0
SETTLED_S, STILL_S = WAIT_ALL_S + 6.0, 6.0
"""Where links stay cut a group may end, and those that reach one another wait before they begin without the rest."""
STRANGERS = 1_000_000
"""From this seed on, a stranger listens and speaks."""
ENDINGS = ("whole", "whole", "off", "paused", "cut off", "links")


@dataclass(frozen=True)
class RunStory(Story):
    ending: str = "whole"
    """What those are in the end who are `out`, before all are whole again."""
    out: tuple[int, ...] = ()
    layers: int = 0
    """Of a model that is cut: each machine holds two. 0: each holds all of it."""
    ends: bool = False
    """The run is over in the end, and somebody is told."""

    KIND = "run"
    EASIER = ({"ending": "whole", "out": ()}, {"layers": 0}, {"ends": False})

    @property
    def has_stranger(self) -> bool:
        return self.seed >= STRANGERS

    @classmethod
    def of(cls, seed: int) -> RunStory:
        dice = Random(seed)
        size = dice.choice((3, 3, 3, 3, 3, 3, 4, 5)) if seed % 100 else dice.choice((2, 8, 12, 16))
        faults = drawn(dice, size, dice.randrange(1, 7), FAULTS_WITHIN_S)
        ending, out = dice.choice(ENDINGS), dice.sample(range(size), dice.randrange(1, 1 + (size + 1) // 2))
        layers = dice.choice((0, 0, 0, 2 * size - 2))
        return cls(seed, size, tuple(faults), ending, tuple(sorted(out)), layers, dice.random() < 0.3)

    def world(self) -> PlayedRun:
        return PlayedRun(self)

    def words(self) -> str:
        out = f"; in the end {self.ending}: {', '.join(f'n{i}' for i in self.out)}" if self.ending != "whole" else ""
        return f"{super().words()}{out}{'; the run ends' if self.ends else ''}"


class PlayedRun(Cluster):
    story: RunStory

    def __init__(self, story: RunStory) -> None:
        super().__init__(story, story.layers, has_address=story.ends)
        self.stranger = Stranger(self.play, story.seed) if story.has_stranger else None

    def counted(self) -> dict[str, float]:
        said = {"words of a stranger": self.stranger.said} if self.stranger else {}
        return {"steps": self.truth.steps_made} | super().counted() | said

    def run(self) -> None:
        self.train_or_wait(self.order)
        self.play.run(self.befall() + 1.0)
        self.whole_again()
        if self.story.ends:
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
                some = {way for way in sorted(across) if self.play.dice.random() < 0.4}
                self.cut(some)
                self._no_thrash()
                self.plug(some)
        self.stirs()
        self.play.run(self.play.time + 1.0)
        self.train_or_wait(self.order)

    def limit_s(self, names: Iterable[str]) -> float:
        held_s = max(map(self.truth.may_be_held_s, names))
        return TOGETHER_S + held_s + self.delays_s(AFTER_HANG_S, AFTER_FAILURES_S)

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
        hangs = {fault.kind for fault in self.story.faults} & HANGS
        held_s = max(map(self.truth.may_be_held_s, self.order))
        self.play.run(self.play.time + SETTLED_S + held_s + AFTER_HANG_S * bool(hangs))
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
        if self.notices.count("done") != 1:
            self.truth.breaks(f"the end was told {self.notices.count('done')} times")
