"""A strategy: how the gradients of a step come about and become an update of the weights.

The training loop calls, in each step, `divisor`, `gradients` and `exchange`; when all ranks have reported, `observe`,
`update` and `decide`. It never asks which strategy it has. What stands here fits all that exchange gradients in every
step (gradient_exchange.py); diloco.py lets each rank take steps of its own in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from train.models.backends import Batch
from train.models.optimizer_step import Trained


@dataclass(frozen=True)
class StepTiming:
    """One rank's summed loss of one step, and its seconds."""

    loss_sum: float
    compute_s: float
    blocked_s: float
    """Seconds from the end of its own computing until the exchange was done: waiting and transfer."""
    deltas_s: float = 0.0
    """Seconds that deltas travelled which arrived in this step, most of them while it computed (diloco.py)."""
    pipe_s: float = 0.0
    """Seconds in a pipe: its own computing and waiting for other stages, until its part of all rows was done."""
    layer_rows: float = 0.0
    """The rank's work in a pipe: its layers times its rows."""


@dataclass(frozen=True)
class Choice:
    """What a strategy found by measuring and keeps to from now on; the same on all ranks."""

    decided: dict[str, str]
    message: str
    event: dict[str, Any] = field(default_factory=dict)
    """The facts of an event `local`, where there is one."""


class Strategy:
    kind: str
    """The strategy's name in the step event."""
    why: str
    """Why this strategy is taken, for the start of a run."""
    comparing = False
    """Whether two options are being timed against each other: nothing else should change meanwhile."""

    own_moments = False
    """Whether each rank's optimizer has moments of its own: a node that resumes takes those that it saved."""

    @property
    def outlives_its_group(self) -> bool:
        """Whether its process may stay, with weights and optimizer, where the group changes: leave_group() then."""
        return False

    def leave_group(self) -> None:
        raise NotImplementedError

    def __init__(self, trained: Trained) -> None:
        self.trained = trained
        self.shared_step = 0
        """The last step whose weights all ranks share. Only where it is the run's own, they all hold the same: there it
        is compared, evaluated and saved."""

    def divisor(self, targets: Sequence[int], rank: int) -> int:
        """What this rank's summed loss is divided by; `targets` are the target tokens of each rank's rows."""
        return sum(targets)

    def gradients(self, batches: list[Batch], weight: float) -> StepTiming:
        raise NotImplementedError

    @property
    def interrupted_exchange(self) -> bool:
        """Whether an error broke off an exchange: the other ranks wait in it, so the step cannot be repeated."""
        return False

    def exchange(
        self, step: int, timing: StepTiming, norm: float, targets: Sequence[int], *, saving: bool
    ) -> StepTiming:
        """Exchanges what travels beside gradients, before `step` is reported; `saving`: a checkpoint may follow it."""
        return timing

    def observe(self, timings: list[StepTiming]) -> list[StepTiming]:
        """Takes in what all ranks reported, in rank order, and gives it back as it is to be read."""
        return timings

    def update(self, step: int, norm: float) -> None:
        """Makes the weights after step `step`; `norm` is that of the whole gradient."""
        self.trained.step(norm)
        self.shared_step = step

    def decide(self) -> Choice | None:
        return None

    def forget_timings(self) -> None:
        """Forgets timings as the shares changed: the steps so far do not compare with those that follow."""

    def rollback(self) -> int:
        """Goes back to the last step that all ranks shared; returns it."""
        return self.shared_step

    # -- kept with a checkpoint ---------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        return {}

    def tensors(self) -> dict[str, Tensor]:
        return {}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Takes tensors from a checkpoint; empty where it was written under another strategy."""

    def resume(self, step: int, state: Mapping[str, Any]) -> None:
        """Resumes with the weights after `step`; `state` is empty where no checkpoint was there."""
        self.shared_step = step
