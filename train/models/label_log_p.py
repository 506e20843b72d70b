"""How likely a model finds the tokens of an answer that is there already: for losses that compare answers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from train.models.hf import head_of, in_chunks, whole_of


def log_p_of_labels(model: nn.Module, batch: dict[str, Tensor], temperature: float) -> tuple[Tensor, Tensor]:
    """The log-probability of each label, one after another, and where they stand behind the first column. The scores of
    some tokens are held at a time: with a gradient they are computed again behind them."""
    whole = whole_of(model)
    states = whole.get_decoder()(input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False)[0]
    targets = batch["labels"][:, 1:]
    kept = targets != -100
    of_chunk = partial(chosen_log_p, head_of(whole), temperature)
    return torch.cat(in_chunks(of_chunk, states[:, :-1][kept], targets[kept])), kept


def chosen_log_p(head: Any, temperature: float, states: Tensor, targets: Tensor) -> Tensor:
    scores = head(inputs_embeds=states[None], use_cache=False).logits[0].float() / temperature
    return scores.log_softmax(-1).gather(1, targets[:, None])[:, 0]


def placed_log_p(model: nn.Module, batch: dict[str, Tensor], *, temperature: float = 1.0) -> Tensor:
    """The log-probability of each label in its place, and 0 where there is none."""
    log_p, kept = log_p_of_labels(model, batch, temperature)
    rows, places = kept.nonzero(as_tuple=True)
    return torch.zeros(batch["labels"].shape, device=log_p.device).index_put((rows, places + 1), log_p)
