"""How fast a machine would write one more answer, and which machine a request goes to. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

KEPT = 0.99
"""The part of a measurement's weight that is left after the next one: after 70 tokens it counts half."""
FIRST = 1.0
"""The weight of what a machine has measured of itself at its start: what is seen of its answers soon replaces it."""
DOUBT = 0.1
"""How little the numbers of answers may differ (squared) before nothing can be said of what one more would take."""


@dataclass(frozen=True, slots=True)
class Pace:
    """Moving sums over measurements: of how many answers side by side, and the seconds for a token of each.

    A token takes `alone + more * (answers - 1)` seconds; the line through what was measured lately says both."""

    weight: float
    answers: float
    squares: float
    seconds_sum: float
    products: float

    @classmethod
    def alone(cls, seconds: float) -> Pace:
        """The pace that a machine measures before its first answer."""
        return cls(FIRST, FIRST, FIRST, FIRST * seconds, FIRST * seconds)

    def seen(self, answers: int, seconds: float) -> Pace:
        """With a token of one of so many answers, which took so long."""
        return Pace(
            KEPT * self.weight + 1,
            KEPT * self.answers + answers,
            KEPT * self.squares + answers * answers,
            KEPT * self.seconds_sum + seconds,
            KEPT * self.products + answers * seconds,
        )

    def seconds(self, answers: int) -> float:
        """For a token of one of so many answers. Where their number has hardly changed, two are taken to need twice as
        long as one, until the machine has shown otherwise."""
        number, taken = self.answers / self.weight, self.seconds_sum / self.weight
        spread = self.squares / self.weight - number * number
        together = self.products / self.weight - number * taken
        twice = taken / number
        more = min(twice, max(0.0, (together + DOUBT * twice) / (spread + DOUBT)))
        return taken + more * (answers - number)

    def tokens_per_s(self, answers: int) -> float:
        return max(1, answers) / self.seconds(max(1, answers))


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
