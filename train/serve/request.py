"""A request, and how one token of its answer is drawn.

Chance is a function of the request's seed and of the token's place alone (train/models/repeatable_random.py): an answer
does not depend on what is answered beside it, and whoever continues it draws what the first one would have drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from train.models.repeatable_random import key
from train.models.sample_tokens import gumbel, likeliest


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    number: int
    prompt: tuple[int, ...]
    begun: tuple[int, ...] = ()
    """The tokens of its answer that another machine has made before it was lost."""
    temperature: float = 0.0
    """0: always the likeliest token."""
    top_p: float = 1.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Made:
    """Tokens that an engine has made for a request, or why it made none."""

    number: int
    tokens: tuple[int, ...] = ()
    failed: str = ""


class Engine(Protocol):
    """What makes tokens for several requests at once. It knows no end: who asks drops what has ended."""

    name: str

    def begin(self, asked: Asked) -> None: ...
    def drop(self, numbers: Sequence[int]) -> None: ...
    def step(self) -> list[Made]:
        """The next tokens of whatever has been begun; it may return without any."""

    def close(self) -> None: ...


def drawn(scores: Tensor, requests: Sequence[Asked], places: Sequence[int]) -> list[int]:
    """One token from each line of the scores."""
    tokens: list[int] = scores.argmax(-1).tolist()
    for row, (asked, place) in enumerate(zip(requests, places, strict=True)):
        if asked.temperature > 0:
            line = likeliest(scores[row : row + 1] / asked.temperature, asked.top_p).double()
            noise = gumbel([key(asked.seed, "served", place)], line.shape[-1], line.device)
            tokens[row] = int((line + noise).argmax(-1)[0])
    return tokens


def on_its_left(rows: Sequence[Sequence[int]], device: str) -> tuple[Tensor, Tensor]:
    """Rows of unequal length as one tensor that is filled up on the left, and which of it are tokens."""
    longest = max(map(len, rows))
    ids = torch.tensor([[0] * (longest - len(row)) + list(row) for row in rows], device=device)
    mask = torch.tensor([[0] * (longest - len(row)) + [1] * len(row) for row in rows], device=device)
    return ids, mask
