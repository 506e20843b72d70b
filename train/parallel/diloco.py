"""`sync: local`: every process takes inner steps of its own, and what they came to travels while it takes the next ones
(DiLoCo, Douillard et al. 2023, with the exchange delayed as in Streaming DiLoCo, 2025).

A round is some inner steps. In each, a process trains its slice of the step's rows as always, but takes the mean
gradient over its own target tokens and updates its own weights. Where the round ends, each sends its delta (how far its
weights moved, and what rounding left out of the last) and begins the next round at once. Where that ends, the deltas of
all have arrived. They are averaged, each by the target tokens that it was trained on; the outer step, a Nesterov step
along that average, changes the common weights; and each moves its own by as much as the common ones moved beyond the
delta that it had sent. So a process's own weights are always the common ones and what it has trained since.

Before anything is proven, evaluated or saved, and after the first round, nobody trains ahead: all wait for the deltas
of this round too, and hold the same.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from train.models.backends import Batch, LossModule
from train.models.optimizer_step import Trained
from train.parallel.delta_exchange import Exchange, connections
from train.parallel.gradient_exchange import FlatSync
from train.parallel.process_group import World
from train.parallel.strategy import Choice, StepTiming, Strategy
from train.plan.settings.read_settings import RunConfig
from train.plan.speed import step_time

CHANGED = 1.5
"""An exchange that took up to so many times as long, or as short, is no reason for another number of steps."""


@dataclass(frozen=True)
class Held:
    """What is known where a round ends: all of it as vectors over all weights, in main memory."""

    own: Tensor
    """This rank's weights."""
    common: Tensor
    """The same on all ranks: the weights with the deltas of all rounds that have arrived."""
    velocity: Tensor
    """The outer momentum, the same on all ranks."""
    step: int
    """The last step whose rows are in the common weights."""


class DiLoCo(Strategy):
    """The round that is running, and what is known of it; `shared_step` is the last step in the common weights."""

    kind = "local"
    own_moments = True

    def __init__(
        self, trained: Trained, module: LossModule, world: World, device: str, config: RunConfig, *, total_steps: int
    ) -> None:
        super().__init__(trained)
        self.gradients_of = FlatSync(module, trained.parameters, "fp32", device, exchanges=False)
        self.world = world
        self.rate, self.momentum = config.outer_learning_rate, config.outer_momentum
        self.total_steps = total_steps
        self.measured = config.local_steps == "auto"
        """Whether the number of steps follows from what they take; else it is as set."""
        self.steps = step_time.first_round(total_steps) if self.measured else int(config.local_steps)
        self.known = False
        """Whether a round has shown what a step and an exchange take."""
        self.group = connections(world)
        self.velocity = torch.zeros_like(self.own())
        self.exchange_s = 0.0
        """Seconds that the last exchange of deltas took, the same on all ranks."""
        self.seconds: list[float] = []
        self.begin(0)

    @property
    def why(self) -> str:  # type: ignore[override]
        until = ", until measured" if self.measured else ""
        return f"rounds of {self.steps} steps{until}; the curve depends on the cluster"

    def begin(self, step: int) -> None:
        """Begins where all hold the same after this step."""
        self.shared_step = self.round_began = step
        self.common = self.own()
        self.travelling: Exchange | None = None
        self.reached: Held | None = None
        self.tokens: list[int] = []

    def own(self) -> Tensor:
        """A copy of this rank's weights."""
        return torch.cat([p.detach().flatten() for p in self.trained.parameters]).to("cpu", torch.float32)

    def take(self, weights: Tensor) -> None:
        parts = weights.split([p.numel() for p in self.trained.parameters])
        with torch.no_grad():
            for parameter, part in zip(self.trained.parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))

    def rollback(self) -> int:
        if self.tokens or self.travelling:
            self.take(self.common)
            self.begin(self.shared_step)
        return self.shared_step

    # -- inner steps --------------------------------------------------------------------------------------------------

    def divisor(self, targets: Sequence[int], rank: int) -> int:
        return targets[rank]

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        return self.gradients_of.gradients(batches, weight)

    def exchange(
        self, step: int, timing: StepTiming, norm: float, targets: Sequence[int], *, saving: bool
    ) -> StepTiming:
        """Takes the inner step, and exchanges where the round ends; nothing that all share changes here."""
        with self.trained.changing():
            self.tokens = [a + b for a, b in zip(self.tokens or [0] * len(targets), targets, strict=True)]
            if targets[self.world.rank]:
                self.trained.step(norm)
        if not self.ends_with(step):
            return timing
        start = time.perf_counter()
        self.reached, arrived = self.end_round(step, together=saving or not self.known)
        deltas_s = arrived.took_s if arrived else 0.0
        return replace(timing, blocked_s=time.perf_counter() - start, deltas_s=deltas_s)

    def ends_with(self, step: int) -> bool:
        return step - self.round_began >= self.steps or step == self.total_steps

    def observe(self, timings: list[StepTiming]) -> list[StepTiming]:
        longest_s = max(timing.compute_s for timing in timings)
        self.seconds.append(longest_s)
        self.exchange_s = min(timing.deltas_s for timing in timings) or self.exchange_s
        if self.reached:
            return timings
        # nothing is waited for, but nobody is a step ahead
        return [replace(timing, blocked_s=longest_s - timing.compute_s) for timing in timings]

    # -- where a round ends -------------------------------------------------------------------------------------------

    def end_round(self, step: int, *, together: bool) -> tuple[Held, Exchange | None]:
        """What has come of the last round's deltas, and the exchange that brought them; this round's are on their way,
        or have arrived too, where all shall hold the same: `together`."""
        held, arrived = Held(self.own(), self.common, self.velocity, self.shared_step), self.travelling
        if arrived:
            held = self.outer_step(held, arrived, self.round_began)
        self.travelling = Exchange(held.common - held.own, self.tokens, self.world, self.group)
        if together:
            arrived, self.travelling = self.travelling, None
            held = self.outer_step(held, arrived, step)
            held = replace(held, own=held.common)
            if self.trained.scaler:
                self._agree_on_scale()
        return held, arrived

    def outer_step(self, held: Held, arrived: Exchange, step: int) -> Held:
        """Takes the Nesterov step along the average of what has arrived: the rows up to `step`."""
        average = arrived.average()
        velocity = held.velocity * self.momentum + average
        common = held.common - self.rate * (average + self.momentum * velocity)
        own = held.own + (common - held.common + arrived.sent)
        return Held(own, common, velocity, step)

    def update(self, step: int, norm: float) -> None:
        if not (held := self.reached):
            return
        self.take(held.own)
        self.common, self.velocity, self.shared_step = held.common, held.velocity, held.step
        self.round_began, self.reached, self.tokens = step, None, []
        if held.step == step:
            self.begin(step)

    def _agree_on_scale(self) -> None:
        """Takes the most careful rank's scale: an overflow on one of them is an overflow on all."""
        state = self.trained.scaler.state_dict()
        names = ("scale", "_growth_tracker")
        everyone = self.world.numbers([float(state[name]) for name in names])
        scale, tracker = (min(row[i] for row in everyone) for i in range(len(names)))
        self.trained.scaler.load_state_dict({**state, "scale": scale, "_growth_tracker": int(tracker)})

    # -- how many inner steps -----------------------------------------------------------------------------------------

    def decide(self) -> Choice | None:
        """The next round's number of steps from what this one took. All ranks have the same figures."""
        if self.tokens or not self.exchange_s:  # in the middle of a round, or none has arrived since the run resumed
            return None
        step_s, self.seconds = statistics.median(self.seconds), []
        fewest, wanted, most = (
            step_time.local_steps(step_s, self.exchange_s * factor, self.total_steps)
            for factor in (1 / CHANGED, 1, CHANGED)
        )
        stays = fewest <= self.steps <= most if self.known else wanted == self.steps
        self.known = True
        if not self.measured or stays:
            return None
        self.steps = wanted
        reason = f"deltas travel for {self.exchange_s:.2f} s, a step takes {step_s:.2f} s"
        message = f"rounds of {wanted} steps from step {self.round_began + 1}: {reason}"
        return Choice({}, message, {"steps": wanted, "reason": reason})  # a checkpoint keeps it

    # -- kept with a checkpoint ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"local_steps": self.steps}

    def tensors(self) -> dict[str, Tensor]:
        """The outer momentum by weight: parts of the one vector."""
        named = self.trained.named
        parts = self.velocity.split([p.numel() for p in named.values()])
        return {name: part.view_as(named[name]) for name, part in zip(named, parts, strict=True)}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        own = self.tensors()
        for name, tensor in tensors.items():
            own[name].copy_(tensor)

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        if before := state.get("local_steps"):
            self.known = True
            if self.measured:
                self.steps = min(int(before), step_time.most_local_steps(self.total_steps))
        self.begin(step)
