"""Chance while training that does not depend on the cluster: each number follows from the seed, the row's place in the
stream of all rows, and where in the row it is (repeatable_random.py). So it is the same whoever computes the row, in
whatever micro-batch, and when a lost node's rows are computed again; and a row that comes again in a later epoch gets
another.

    neftune    noise on what tokens are looked up as (NEFTune), by the length of each sample
    Dropout    in the place of an adapter's own: a mask for each row and layer
    Numbered   which rows are computed now, for both of them

In an evaluation there is none.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from train.models.repeatable_random import BITS, key, uniform, whole

ROWS = "stream_rows"
"""The column of a batch that has the place of each of its rows in the stream of all rows."""


class Numbered:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rows: list[int] = []
        self.lengths: Tensor | None = None

    def keys(self, what: str, given: Tensor) -> list[int]:
        """A key for each row of what a layer is given."""
        if len(self.rows) != len(given):
            raise RuntimeError(f"{what}: {len(given)} rows are computed, and {len(self.rows)} have a number")
        return [key(self.seed, what, row) for row in self.rows]


def put(model: nn.Module, embedding: nn.Module, *, alpha: float, dropout: float, seed: int) -> None:
    """Both where they are asked for; `alpha` and `dropout` 0: nothing."""
    if not (alpha or dropout):
        return
    model.numbered = numbered = Numbered(seed)
    if alpha:
        embedding.register_forward_hook(partial(_neftune, numbered, alpha))
    for name, module in list(model.named_modules()) if dropout else []:
        if hasattr(module, "lora_dropout"):
            module.lora_dropout["default"] = Dropout(numbered, name, dropout)


def of_rows(model: nn.Module, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch without its numbers, which the layers know from now on: a backward pass may compute them again. What is
    only tried, for its memory or time, has no numbers."""
    if (numbered := getattr(model, "numbered", None)) is None:
        return batch
    rows = batch.get(ROWS)
    numbered.rows = list(range(len(batch["input_ids"]))) if rows is None else rows.tolist()
    numbered.lengths = sample_lengths(batch["position_ids"])
    return {name: values for name, values in batch.items() if name != ROWS}


def sample_lengths(position_ids: Tensor) -> Tensor:
    """The length of each token's sample, which begins where positions do."""
    sample = (position_ids == 0).cumsum(1) - 1
    counts = torch.zeros_like(position_ids).scatter_add_(1, sample, torch.ones_like(position_ids))
    return counts.gather(1, sample)


def _neftune(numbered: Numbered, alpha: float, module: nn.Module, _: Any, states: Tensor) -> Tensor:
    if not (module.training and torch.is_grad_enabled()):
        return states
    assert numbered.lengths is not None
    tokens, width = states.shape[1:]
    size = alpha / (numbered.lengths * width).double().sqrt()[..., None]
    drawn = by_row(uniform, numbered.keys("neftune", states), tokens * width, states)
    return states + ((2 * drawn.view(states.shape) - 1) * size).to(states.dtype)


class Dropout(nn.Module):  # type: ignore[misc]
    def __init__(self, numbered: Numbered, name: str, p: float) -> None:
        super().__init__()
        self.numbered, self.name, self.p = numbered, name, p

    def forward(self, states: Tensor) -> Tensor:
        if not self.training:
            return states
        drawn = by_row(whole, self.numbered.keys(self.name, states), math.prod(states.shape[1:]), states)
        kept = drawn.view(states.shape) >= int(self.p * 2**BITS)
        return states * kept / (1 - self.p)


def by_row(draw: Callable[..., Tensor], keys: list[int], count: int, like: Tensor) -> Tensor:
    """A row at a time: whole numbers take four times what they become."""
    return torch.cat([draw([one], count, like.device) for one in keys])
