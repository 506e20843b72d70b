"""Chance from a counter: a number is a function of what it is for and of its place, in whole numbers until its last
step. So it is the same on any device, in any batch, whoever computes it and when."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

STEP, FIRST, SECOND = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15
"""SplitMix64's numbers, as signed ones: torch multiplies 64-bit integers as a processor does."""
BITS = 53
"""How many bits each number has: as many as a double holds."""


def key(*counters: int | str) -> int:
    words = " ".join(map(str, counters)).encode()
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), signed=True)


def whole(keys: Sequence[int], count: int, device: torch.device) -> Tensor:
    """`count` numbers from 0 to below 2 ** BITS for each key, in a line of their own."""
    mixed = torch.arange(1, count + 1, device=device) * STEP + torch.tensor(list(keys), device=device)[:, None]
    mixed = (mixed ^ shifted(mixed, 30)) * FIRST
    mixed = (mixed ^ shifted(mixed, 27)) * SECOND
    mixed = mixed ^ shifted(mixed, 31)
    return shifted(mixed, 64 - BITS)


def uniform(keys: Sequence[int], count: int, device: torch.device) -> Tensor:
    """Numbers between 0 and 1, and neither."""
    return (whole(keys, count, device).double() + 0.5) * 2.0**-BITS


def shifted(numbers: Tensor, by: int) -> Tensor:
    """Shifts to the right, as numbers without a sign."""
    return (numbers >> by) & ((1 << (64 - by)) - 1)
