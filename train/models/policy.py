"""The loss of answers that were scored: each token becomes likelier as its answer was better than its group, and less
likely as it was worse; and with `beta` the model is held near its base."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from train.models.hf import head_of, whole_of
from train.plan.model.memory import LOSS_CHUNK_TOKENS


def loss_sum(model: nn.Module, batch: dict[str, Tensor], *, temperature: float, beta: float) -> Tensor:
    """Over all tokens of the answers, each by the weight of its row. `batch` has beside a language model's columns the
    advantage and the weight of each row, and with `beta` the base's log-probability of each token."""
    backbone = whole_of(model).get_decoder()
    states = backbone(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    rows = kept.nonzero()[:, 0]
    of_tokens = [states[:, :-1][kept], targets[kept], batch["advantages"][rows], batch["weights"][rows]]
    if beta:
        of_tokens.append(batch["base_log_p"][:, 1:][kept])
    of_chunk = partial(chunk_loss, head_of(whole_of(model)), temperature, beta)
    if len(rows) <= LOSS_CHUNK_TOKENS:
        return of_chunk(*of_tokens)
    chunks = zip(*(part.split(LOSS_CHUNK_TOKENS) for part in of_tokens), strict=True)
    if not torch.is_grad_enabled():
        return torch.stack([of_chunk(*chunk) for chunk in chunks]).sum()
    found = [checkpoint(of_chunk, *chunk, use_reentrant=False, preserve_rng_state=False) for chunk in chunks]
    return torch.stack(found).sum()


def chunk_loss(  # noqa: PLR0917 - what a checkpoint takes
    head: Any, temperature: float, beta: float, states: Tensor, targets: Tensor, advantages: Tensor, weights: Tensor,
    base_log_p: Tensor | None = None,
) -> Tensor:  # fmt: skip
    log_p = chosen_log_p(head, temperature, states, targets)
    losses = -(log_p - log_p.detach()).exp() * advantages
    if base_log_p is not None:
        losses = losses + beta * divergence(log_p, base_log_p)
    return (losses * weights).sum()


def divergence(log_p: Tensor, base_log_p: Tensor) -> Tensor:
    """Schulman's estimate of the KL divergence by one token, which is never below 0."""
    apart = base_log_p - log_p
    return apart.exp() - apart - 1


def chosen_log_p(head: Any, temperature: float, states: Tensor, targets: Tensor) -> Tensor:
    scores = head(inputs_embeds=states[None], use_cache=False).logits[0].float() / temperature
    return scores.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def log_p_of_labels(model: nn.Module, batch: dict[str, Tensor], *, temperature: float = 1.0) -> Tensor:
    """The log-probability of each label, and 0 where there is none. Scores exist for a chunk of them at a time."""
    whole = whole_of(model)
    states = whole.get_decoder()(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    of_chunk: Any = partial(chosen_log_p, head_of(whole), temperature)
    if torch.is_grad_enabled() and int(kept.sum()) > LOSS_CHUNK_TOKENS:
        of_chunk = partial(checkpoint, of_chunk, use_reentrant=False, preserve_rng_state=False)
    chunks = zip(states[:, :-1][kept].split(LOSS_CHUNK_TOKENS), targets[kept].split(LOSS_CHUNK_TOKENS), strict=True)
    values = torch.cat([of_chunk(*chunk) for chunk in chunks])
    rows, places = kept.nonzero(as_tuple=True)
    return torch.zeros(batch["labels"].shape, device=states.device).index_put((rows, places + 1), values)
