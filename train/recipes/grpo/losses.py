"""The loss of answers that were scored: each token becomes likelier as its answer was better than its group, and less
likely as it was worse; and with `beta` the model is held near its base.

Where several steps train on the same answers, a token weighs by the ratio of its probability now to what it was when
its answer was made, and pulls no further once that ratio has left its bounds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.models.hf import head_of, whole_of
from train.plan.model.memory import LOSS_CHUNK_TOKENS


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
"""Beside the loss: how many tokens are beyond their bounds, where several steps train on the same answers."""


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


def log_p_of_labels(model: nn.Module, batch: dict[str, Tensor], temperature: float) -> tuple[Tensor, Tensor]:
    """The log-probability of each label, one after another, and where they stand behind the first column. The scores of
    some tokens are held at a time: with a gradient they are computed again behind them."""
    whole = whole_of(model)
    states = whole.get_decoder()(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    of_chunk = partial(chosen_log_p, head_of(whole), temperature)
    chunks = list(
        zip(
            states[:, :-1][kept].split(LOSS_CHUNK_TOKENS),
            targets[kept].split(LOSS_CHUNK_TOKENS),
            strict=True,
        )
    )
    if len(chunks) == 1 or not torch.is_grad_enabled():
        return torch.cat([of_chunk(*chunk) for chunk in chunks]), kept
    found = [checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return torch.cat(found), kept


def chosen_log_p(head: Any, temperature: float, states: Tensor, targets: Tensor) -> Tensor:
    scores = head(inputs_embeds=states[None], use_cache=False).logits[0].float() / temperature
    return scores.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def placed_log_p(model: nn.Module, batch: dict[str, Tensor], *, temperature: float = 1.0) -> Tensor:
    """The log-probability of each label in its place, and 0 where there is none."""
    log_p, kept = log_p_of_labels(model, batch, temperature)
    rows, places = kept.nonzero(as_tuple=True)
    return torch.zeros(batch["labels"].shape, device=log_p.device).index_put((rows, places + 1), log_p)
