"""`sync: local`: every process takes inner steps of its own, and now and then all exchange (DiLoCo, Douillard et al.
2023).

A round is some inner steps. In each, a process trains its slice of the step's rows as always, but takes the mean
gradient over its own target tokens and updates its own weights. Where the round ends, the deltas of all processes (how
far each one's weights moved) are averaged, each by the target tokens that it was trained on, and the outer step, a
Nesterov step along that average, starts from the weights that all shared. Then all hold the same again.

What all shared when the round began is kept, so that a run that breaks off resumes from there.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from train.models.backends import Batch, LossModule
from train.models.weights import Trained, optimizer_state, set_optimizer_state
from train.parallel.process_group import World
from train.parallel.strategy import Choice, StepTiming, Strategy
from train.parallel.sync import FlatSync, all_reduce
from train.plan.settings.config import RunConfig
from train.plan.speed import speedup

CHANGED = 1.5
"""An exchange that took up to so many times as long, or as short, is no reason for another number of steps."""
MOMENTS = ("exp_avg", "exp_avg_sq")


class DiLoCo(Strategy):
    """The round that is running, and what is known of it; `shared_step` is where it began."""

    kind = "local"

    def __init__(
        self,
        trained: Trained,
        module: LossModule,
        world: World,
        device: str,
        config: RunConfig,
        *,
        total_steps: int,
        wire: str,
        on_cpu: bool = False,
    ) -> None:
        super().__init__(trained)
        self.own = FlatSync(module, trained.parameters, wire, device, exchanges=False)
        self.world = world
        self.on_cpu = on_cpu
        """GPUs and CPUs train together: all take the outer step on the same kind of processor (engine/optimizer.py)."""
        self.rate, self.momentum = config.outer_learning_rate, config.outer_momentum
        self.total_steps, self.wire = total_steps, wire
        self.measured = config.local_steps == "auto"
        """Whether the number of steps follows from what they take; else it is as set."""
        self.steps = speedup.first_round(total_steps) if self.measured else int(config.local_steps)
        self.known = False
        """Whether a round has shown what a step and an exchange take."""
        self.velocity = {name: torch.zeros_like(p, requires_grad=False) for name, p in trained.named.items()}
        self.average: dict[str, Tensor] = {}
        self.exchange_s = 0.0
        """Seconds that the last exchange of deltas took, the same on all ranks."""
        self.seconds: list[float] = []
        self.begin(0)

    @property
    def why(self) -> str:  # type: ignore[override]
        until = ", until measured" if self.measured else ""
        return f"rounds of {self.steps} steps{until}; the curve depends on the cluster"

    def begin(self, step: int) -> None:
        """Starts a new round: all hold the same after this step."""
        self.shared_step = step
        self.weights = {name: p.detach().clone() for name, p in self.trained.named.items()}
        tensors, self.numbers = optimizer_state(self.trained.named, self.trained.optimizer)
        self.inner = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        self.tokens: list[int] = []

    def rollback(self) -> int:
        if not self.tokens:  # no inner step yet
            return self.shared_step
        named = self.trained.named
        with torch.no_grad():
            for name, parameter in named.items():
                parameter.copy_(self.weights[name])
        set_optimizer_state(named, self.trained.optimizer, self.inner, self.numbers)
        self.tokens = []
        return self.shared_step

    # -- inner steps --------------------------------------------------------------------------------------------------

    def divisor(self, targets: Sequence[int], rank: int) -> int:
        return targets[rank]

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        return self.own.gradients(batches, weight)

    def exchange(
        self, step: int, timing: StepTiming, norm: float, targets: Sequence[int], *, saving: bool
    ) -> StepTiming:
        """Takes the inner step, and syncs where the round ends; nothing that all share changes here."""
        with self.trained.changing():
            self.tokens = [a + b for a, b in zip(self.tokens or [0] * len(targets), targets, strict=True)]
            if targets[self.world.rank]:
                self.trained.step(norm)
        if not self.ends_with(step):
            return timing
        start = time.perf_counter()
        deltas_s = self.sync(moments=saving)
        return replace(timing, blocked_s=time.perf_counter() - start, deltas_s=deltas_s)

    def ends_with(self, step: int) -> bool:
        return step - self.shared_step >= self.steps or step == self.total_steps

    def observe(self, timings: list[StepTiming]) -> list[StepTiming]:
        longest_s = max(timing.compute_s for timing in timings)
        self.seconds.append(longest_s)
        self.exchange_s = min(timing.deltas_s for timing in timings)
        if self.exchange_s:
            return timings
        # nothing is exchanged, but nobody is a step ahead
        return [replace(timing, blocked_s=longest_s - timing.compute_s) for timing in timings]

    # -- the outer step -----------------------------------------------------------------------------------------------

    def sync(self, *, moments: bool) -> float:
        """Averages the deltas over all processes, and the optimizer's moments where these are to be saved: in between
        each process keeps its own (averaged or not makes no difference to the loss). Seconds of the deltas alone."""
        weight = self.tokens[self.world.rank] / max(1, sum(self.tokens))
        started = time.perf_counter()
        named = self.trained.named
        self.average = self._all_reduce({name: weight * (self.weights[name] - p.detach()) for name, p in named.items()})
        next(iter(self.average.values())).flatten()[0].item()  # a GPU is done only now
        taken_s = time.perf_counter() - started
        if moments:
            self._average_moments(weight)
        if self.trained.scaler:
            self._agree_on_scale()
        return taken_s

    def update(self, step: int, norm: float) -> None:
        if self.ends_with(step):
            self.outer_step()
            self.begin(step)

    def outer_step(self) -> None:
        """Takes the Nesterov step, from the weights that all shared."""
        with torch.no_grad():
            for name, parameter in self.trained.named.items():
                place = torch.device("cpu") if self.on_cpu else parameter.device
                delta, start = self.average[name].to(place), self.weights[name].to(place)
                velocity = self.velocity[name].to(place) * self.momentum + delta
                self.velocity[name].copy_(velocity)
                parameter.copy_(start - self.rate * (delta + self.momentum * velocity))

    def _all_reduce(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        """Sums them in their place."""
        if dist.is_initialized():
            all_reduce(list(named.values()), self.wire)
        return named

    def _average_moments(self, weight: float) -> None:
        """Averages the moments; a process without any takes the others'. The count of steps is that of the furthest."""
        if not dist.is_initialized():
            return
        named, state = self.trained.named, self.trained.optimizer.state
        for kind in MOMENTS:
            own = {name: state[p].get(kind, torch.zeros_like(p)) * weight for name, p in named.items()}
            for name, average in self._all_reduce(own).items():
                state[named[name]][kind] = average
        counts = [state[p].get("step", torch.zeros(())) for p in named.values()]
        furthest = torch.tensor(
            [float(max(counts))], dtype=torch.float64, device=next(iter(self.average.values())).device
        )
        dist.all_reduce(furthest, op=dist.ReduceOp.MAX)
        for p in named.values():
            state[p]["step"] = torch.tensor(float(furthest.item()))

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
        if self.tokens:  # in the middle of a round
            return None
        step_s, self.seconds = statistics.median(self.seconds), []
        fewest, wanted, most = (
            speedup.local_steps(step_s, self.exchange_s * factor, self.total_steps)
            for factor in (1 / CHANGED, 1, CHANGED)
        )
        stays = fewest <= self.steps <= most if self.known else wanted == self.steps
        self.known = True
        if not self.measured or stays:
            return None
        self.steps = wanted
        part = self.exchange_s / (self.exchange_s + wanted * step_s)
        reason = (
            f"an exchange takes {self.exchange_s:.2f} s, a step {step_s:.2f} s: "
            f"{part:.0%} of the time with {wanted} steps"
        )
        message = f"rounds of {wanted} steps from step {self.shared_step + 1}: {reason}"
        return Choice({"local_steps": str(wanted)}, message, {"steps": wanted, "reason": reason})

    # -- kept with a checkpoint ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {"local_steps": self.steps}

    def tensors(self) -> dict[str, Tensor]:
        return self.velocity

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        for name, tensor in tensors.items():
            self.velocity[name].copy_(tensor)

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        if self.measured and state.get("local_steps"):
            self.steps = min(int(state["local_steps"]), speedup.most_local_steps(self.total_steps))
            self.known = True
        self.begin(step)
