"""How long a run still takes, by what its steps took lately: one answer for the terminal, the live page and status."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

NEWEST = 0.1
"""How much the newest step counts: one that is slow by chance moves the answer little."""


@dataclass(slots=True)
class StepTime:
    """What a step takes; of a run whose work comes in pieces, a piece."""

    seconds: float = 0.0

    @classmethod
    def of(cls, took_s: Iterable[float]) -> Self:
        step_time = cls()
        for seconds in took_s:
            step_time.add(seconds)
        return step_time

    def add(self, took_s: float) -> None:
        self.seconds = (1 - NEWEST) * self.seconds + NEWEST * took_s if self.seconds else took_s

    def left_s(self, step: int, total: int) -> float:
        return max(0, total - step) * self.seconds
