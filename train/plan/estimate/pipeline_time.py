"""How long a step of a pipe takes: its schedule, 1F1B as train/parallel/pipeline.py has it, played with the seconds of
each stage and of each transfer. Pure.

No formula does it: a stage sends while it computes, but goes only as many micro-batches ahead as stages are behind it,
so that a slow link makes it wait; and one in the middle shares its link between hidden states and their gradients.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from train.plan.placement.pipeline_split import stage_seconds

Sent = tuple[float, int, int, int, bool]
"""When it is ready, from which stage, to which, of which micro-batch, whether forward."""


class Play:
    def __init__(self, forward: Sequence[float], backward: Sequence[float], hop_s: float, count: int) -> None:
        self.seconds, self.hop_s = {True: forward, False: backward}, hop_s
        self.last = len(forward) - 1
        self.work = [_schedule(count, ahead=self.last - stage) for stage in range(len(forward))]
        self.done = [0] * len(forward)
        self.clock = [0.0] * len(forward)
        self.arrived: dict[tuple[int, int, bool], float] = {}
        self.sent: list[Sent] = []

    def compute(self) -> None:
        """Lets every stage compute as far as it gets with what has arrived."""
        for stage, work in enumerate(self.work):
            while self.done[stage] < len(work):
                at, ahead = work[self.done[stage]]
                begins = not stage if ahead else stage == self.last
                came = 0.0 if begins else self.arrived.get((stage, at, ahead))
                if came is None:
                    break
                self.clock[stage] = max(self.clock[stage], came) + self.seconds[ahead][stage]
                self.done[stage] += 1
                goes_to = stage + (1 if ahead else -1)
                if 0 <= goes_to <= self.last:
                    heapq.heappush(self.sent, (self.clock[stage], stage, goes_to, at, ahead))

    def seconds_of_all(self) -> float:
        out, into = [0.0] * (self.last + 1), [0.0] * (self.last + 1)
        self.compute()
        while self.sent:
            ready, sender, receiver, at, ahead = heapq.heappop(self.sent)
            there = max(ready, out[sender], into[receiver]) + self.hop_s
            out[sender] = into[receiver] = self.arrived[receiver, at, ahead] = there
            self.compute()
        return max(self.clock)


def _schedule(count: int, ahead: int) -> list[tuple[int, bool]]:
    """The micro-batches of one stage in their order, each once forward and once backward."""
    ahead = min(ahead, count)
    both = ((i, ahead) for i in range(count + ahead))
    return [one for i, late in both for one in ((i, True), (i - late, False)) if 0 <= one[0] < count]


def step_seconds(forward: Sequence[float], backward: Sequence[float], hop_s: float, count: int) -> float:
    """Seconds for `count` micro-batches; the arguments are each stage's seconds for one, and those of a link for it."""
    return Play(forward, backward, hop_s, count).seconds_of_all()


FLOP = {True: 6, False: 4}
"""Operations for a weight and a token: forward, forward again where the backward pass does that, backward to the
inputs. A frozen base has no gradient of weights."""
FORWARD = {True: 1 / 3, False: 1 / 2}
"""The forward pass's part of the computing, where the backward pass computes forward again, and where it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipe:
    """A pipe whose stages' speeds are known."""

    speeds: Sequence[float]
    """Layers of a row per second."""
    counts: Sequence[int]
    """Layers of each stage."""
    head_layers: float
    hop_s: float
    """What a link takes for the hidden states of a row."""
    at_once: int
    """Rows of a micro-batch."""
    checkpoints: bool

    def seconds(self, rows: int) -> float:
        """Seconds that so many rows take, until the last gradient is back."""
        at_once = max(1, min(self.at_once, rows))
        each = [at_once * one for one in stage_seconds(self.counts, self.speeds, self.head_layers)]
        part = FORWARD[self.checkpoints]
        forward, backward = ([share * one for one in each] for share in (part, 1 - part))
        return step_seconds(forward, backward, at_once * self.hop_s, ceil(rows / at_once))
