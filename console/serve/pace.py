"""How fast a machine would write one more answer, and which machine a request goes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

NEW = 0.1
"""The weight of a new measurement in a moving average."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Moving averages of the seconds that a machine takes for a token of one answer: when it writes that one alone, and
    when it writes several side by side, with how many these are."""

    alone_s: float
    side_by_side: float = 0.0
    """Answers; 0: it has not been seen with several."""
    side_by_side_s: float = 0.0

    def seen(self, answers: int, seconds: float) -> Pace:
        """With a token of one of so many answers, which took so long."""
        if answers <= 1:
            return replace(self, alone_s=mixed(self.alone_s, seconds))
        if not self.side_by_side:
            return replace(self, side_by_side=float(answers), side_by_side_s=seconds)
        return replace(
            self,
            side_by_side=mixed(self.side_by_side, answers),
            side_by_side_s=mixed(self.side_by_side_s, seconds),
        )

    def seconds(self, answers: int) -> float:
        """For a token of one of so many answers: on the line through both averages. Of a machine that was not seen with
        several it is assumed that two take twice as long as one: it gets few of them, and shows whether that is so."""
        if answers <= 1:
            return self.alone_s
        if self.side_by_side <= 1.0:
            return self.alone_s * answers
        for_one_more = max(0.0, self.side_by_side_s - self.alone_s) / (self.side_by_side - 1)
        return self.side_by_side_s + for_one_more * (answers - self.side_by_side)

    def tokens_per_s(self, answers: int) -> float:
        return max(1, answers) / self.seconds(answers)


def mixed(old: float, new: float) -> float:
    return old + NEW * (new - old)


@dataclass(frozen=True, slots=True)
class Load:
    """A machine that answers."""

    pace: Pace
    slots: int
    answers: int
    """How many it writes now."""


def choose(machines: Mapping[str, Load]) -> str:
    """The machine that would write one more answer fastest; empty where each has as many as it can."""
    free = [name for name, load in machines.items() if load.answers < load.slots]
    return min(free, key=lambda name: machines[name].pace.seconds(machines[name].answers + 1), default="")
