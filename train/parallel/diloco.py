"""`sync: local`: every process takes steps of its own, and now and then all meet (DiLoCo, Douillard et al. 2023).

A round is some steps. In each, a process trains its slice of the step's rows as always, but takes the mean gradient
over its own target tokens and updates its own weights. Where the round ends, the ways that all have gone are averaged,
each by the target tokens it was trained on, and the weights that all had in common take a Nesterov step along that
average. Then all hold the same again: only there a run is compared, evaluated and saved.

What all shared when the round began is kept, so that a run that breaks off goes on from there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train.models.weights import Named, optimizer_state, set_optimizer_state
from train.parallel.sync import WIRES
from train.plan import speedup

FIRST_ROUND = 4
"""Steps of the first round, which shows how long a step and an exchange take."""
LEAST_ROUNDS = 8
"""Meetings that a run has at least, as far as its steps allow."""
CHANGED = 1.5
"""A new number of steps that differs by less than this factor is not worth a change."""
MOMENTS = ("exp_avg", "exp_avg_sq")


def most_steps(total_steps: int) -> int:
    return max(1, min(speedup.MOST_LOCAL_STEPS, total_steps // LEAST_ROUNDS))


class Rounds:
    """The round that is under way, and what is known of it."""

    def __init__(
        self,
        named: Named,
        optimizer: torch.optim.Optimizer,
        *,
        steps: int | None,
        total_steps: int,
        rate: float,
        momentum: float,
        wire: str,
        on_cpu: bool = False,
    ) -> None:
        self.on_cpu = on_cpu
        """GPUs and CPUs train together: all take the outer step on the same kind of processor (engine/optimizer.py)."""
        self.named, self.optimizer = named, optimizer
        self.total_steps, self.rate, self.momentum, self.wire = total_steps, rate, momentum, wire
        self.measured = steps is None
        """Whether the number of steps follows from what they take; else it is as set."""
        self.steps = steps or min(FIRST_ROUND, most_steps(total_steps))
        self.velocity = {name: torch.zeros_like(p, requires_grad=False) for name, p in named.items()}
        self.average: dict[str, Tensor] = {}
        self.exchange_s = 0.0
        """What the last meeting's exchange of ways took, the same on all ranks."""
        self.seconds: list[float] = []
        self.begin(0)

    def begin(self, step: int) -> None:
        """All hold the same after this step: a new round starts here."""
        self.began = step
        self.weights = {name: p.detach().clone() for name, p in self.named.items()}
        tensors, self.numbers = optimizer_state(self.named, self.optimizer)
        self.inner = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self.tokens: list[int] = []

    def go_back(self) -> int:
        """To where the round began; returns that step."""
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(self.weights[name])
        set_optimizer_state(self.named, self.optimizer, self.inner, self.numbers)
        return self.began

    def count(self, targets: Sequence[int]) -> None:
        """Takes in what each process trained in a step."""
        self.tokens = [a + b for a, b in zip(self.tokens or [0] * len(targets), targets, strict=True)]

    def ends_with(self, step: int) -> bool:
        return step - self.began >= self.steps or step == self.total_steps

    # -- meeting ----------------------------------------------------------------------------------------------------

    def meet(self, rank: int, *, moments: bool) -> float:
        """Averages the ways over all processes, and the optimizer's moments where these are to be saved: in between
        each process keeps its own (averaged or not makes no difference to the loss). Seconds of the ways alone."""
        weight = self.tokens[rank] / max(1, sum(self.tokens))
        started = time.perf_counter()
        ways = {name: weight * (self.weights[name] - p.detach()) for name, p in self.named.items()}
        self.average = self._added_up(ways)
        next(iter(self.average.values())).flatten()[0].item()  # a GPU is done only now
        taken = time.perf_counter() - started
        if moments:
            self._average_moments(weight)
        return taken

    def settle(self, step: int) -> None:
        """The Nesterov step, from the weights that all had in common."""
        with torch.no_grad():
            for name, parameter in self.named.items():
                place = torch.device("cpu") if self.on_cpu else parameter.device
                way, start = self.average[name].to(place), self.weights[name].to(place)
                velocity = self.velocity[name].to(place) * self.momentum + way
                self.velocity[name].copy_(velocity)
                parameter.copy_(start - self.rate * (way + self.momentum * velocity))
        self.begin(step)

    def _added_up(self, parts: dict[str, Tensor]) -> dict[str, Tensor]:
        if not dist.is_initialized():
            return parts
        flat = torch.cat([part.flatten() for part in parts.values()]).to(WIRES[self.wire])
        dist.all_reduce(flat)
        sums = flat.split([part.numel() for part in parts.values()])
        return {name: some.view_as(part).to(part.dtype) for (name, part), some in zip(parts.items(), sums, strict=True)}

    def _average_moments(self, weight: float) -> None:
        """A process without rows has none yet: it takes the others'. The count of steps is that of the furthest."""
        if not dist.is_initialized():
            return
        state = self.optimizer.state
        for kind in MOMENTS:
            own = {name: state[p].get(kind, torch.zeros_like(p)) * weight for name, p in self.named.items()}
            for name, sum_ in self._added_up(own).items():
                state[self.named[name]][kind] = sum_
        counts = [state[p].get("step", torch.zeros(())) for p in self.named.values()]
        furthest = torch.tensor(
            [float(max(counts))], dtype=torch.float64, device=next(iter(self.average.values())).device
        )
        dist.all_reduce(furthest, op=dist.ReduceOp.MAX)
        for p in self.named.values():
            state[p]["step"] = torch.tensor(float(furthest.item()))

    # -- how many steps -----------------------------------------------------------------------------------------------

    def choose(self) -> str:
        """The next round's number of steps from what this one took; why, where it changes. All ranks have the same
        figures."""
        step_s, exchange_s = statistics.median(self.seconds), self.exchange_s
        self.seconds = []
        if not self.measured:
            return ""
        wanted = speedup.local_steps(step_s, exchange_s, most_steps(self.total_steps))
        if max(wanted, self.steps) < CHANGED * min(wanted, self.steps):
            return ""
        self.steps = wanted
        part = exchange_s / (exchange_s + wanted * step_s)
        return (
            f"an exchange takes {exchange_s:.2f} s, a step {step_s:.2f} s: {part:.0%} of the time with {wanted} steps"
        )

    # -- kept with a checkpoint ---------------------------------------------------------------------------------------

    def load(self, velocity: Mapping[str, Tensor]) -> None:
        """Empty where the checkpoint is none of `sync: local`: the first round starts at rest."""
        for name, tensor in velocity.items():
            self.velocity[name].copy_(tensor)

    def go_on(self, step: int, state: dict[str, Any] | None) -> None:
        if state and self.measured and state.get("local_steps"):
            self.steps = min(int(state["local_steps"]), most_steps(self.total_steps))
        self.begin(step)
