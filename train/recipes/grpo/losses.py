"""The loss of answers that were scored: each token becomes likelier as its answer was better than its group, and less
likely as it was worse; and with `beta` the model is held near its base.

Where several steps train on the same answers, a token weighs by the ratio of its probability now to what it was when
its answer was made, and pulls no further once that ratio has left its bounds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from train.models.label_log_p import log_p_of_labels


@dataclass(frozen=True, kw_only=True)
class Loss:
    """How tokens are weighed, the same in all steps."""

    temperature: float
    beta: float = 0.0
    low: float = 0.2
    """How far below 1 a ratio may go."""
    high: float = 0.2
    whole_answers: bool = False
    """Whether all tokens of an answer have one ratio, the geometric mean of their own."""


METRICS = ("clipped",)
"""What is measured beside the loss: how many tokens are beyond their bounds, where several steps train on the same
answers."""


def loss_sum(model: nn.Module, batch: dict[str, Tensor], *, how: Loss) -> Tensor:
    return measured(model, batch, how=how)[0]


def measured(model: nn.Module, batch: dict[str, Tensor], *, how: Loss) -> Tensor:
    """The loss over all tokens of the answers, each by the weight of its row, and the METRICS. `batch` has beside a
    language model's columns the advantage and the weight of each row; with `beta` the base's log-probability of each
    token; and where the answers are those of an earlier step that of the model which made them."""
    log_p, kept = log_p_of_labels(model, batch, how.temperature)
    rows = kept.nonzero()[:, 0]
    better = batch["advantages"][rows]
    ratio = ratios(log_p, kept, batch, whole_answers=how.whole_answers)
    bounded = ratio.clamp(1 - how.low, 1 + how.high)
    losses = -torch.min(ratio * better, bounded * better)
    if how.beta:
        losses = losses + how.beta * divergence(log_p, batch["base_log_p"][:, 1:][kept])
    beyond = ((ratio < 1 - how.low) & (better < 0)) | ((ratio > 1 + how.high) & (better > 0))
    return torch.stack([(losses * batch["weights"][rows]).sum(), beyond.sum().to(losses.dtype)])


def ratios(log_p: Tensor, kept: Tensor, batch: dict[str, Tensor], *, whole_answers: bool) -> Tensor:
    """How likely each token is now beside what it was; 1 for the model that made the answers."""
    then = batch["old_log_p"][:, 1:][kept] if "old_log_p" in batch else log_p.detach()
    apart = log_p - then
    if whole_answers:
        means = of_rows(apart, kept).sum(-1) / kept.sum(-1).clamp(min=1)
        apart = means[kept.nonzero()[:, 0]]
    return apart.exp()


def of_rows(values: Tensor, kept: Tensor) -> Tensor:
    """What stands one after another, in the places of its rows."""
    return torch.zeros(kept.shape, dtype=values.dtype, device=values.device).masked_scatter(kept, values)


def divergence(log_p: Tensor, base_log_p: Tensor) -> Tensor:
    """Schulman's estimate of the KL divergence by one token, which is never below 0."""
    apart = base_log_p - log_p
    return apart.exp() - apart - 1
