"""The deltas of a round on their way to all ranks, in 4 bits, while the next round computes.

Whole numbers from -7 to 7 travel, two in a byte, and a scale for each block of them. Who sends one takes for sent what
the others read of it (`Packed.read`), and keeps what rounding left out. All add up what all have sent, in rank order
and on the processor: the average is the same everywhere, bit by bit.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.profiler import record_function

from train.parallel.process_group import World
from train.runlog.trace import EXCHANGE

BLOCK = 64
"""Numbers with one scale."""
LEVELS = 7
"""The largest whole number of 4 bits, with as many below zero."""


@dataclass(frozen=True)
class Packed:
    """A rank's delta as it travels."""

    codes: Tensor
    count: int

    @classmethod
    def of(cls, delta: Tensor) -> Packed:
        blocks = torch.nn.functional.pad(delta, (0, -delta.numel() % BLOCK)).view(-1, BLOCK)
        scales = (blocks.abs().amax(1, keepdim=True) / LEVELS).clamp(max=torch.finfo(torch.bfloat16).max)
        scales = scales.bfloat16()
        whole = (blocks / scales.float().clamp(min=torch.finfo(torch.float32).tiny)).round().clamp(-LEVELS, LEVELS)
        codes = (whole + LEVELS).to(torch.uint8)
        pairs = codes[:, ::2] | codes[:, 1::2] << 4
        return cls(torch.cat([pairs.flatten(), scales.view(torch.uint8).flatten()]), delta.numel())

    def read(self) -> Tensor:
        blocks = -(-self.count // BLOCK)
        pairs, scales = self.codes.split([blocks * BLOCK // 2, blocks * 2])
        codes = torch.stack([pairs & 15, pairs >> 4], dim=1).view(blocks, BLOCK)
        return ((codes.float() - LEVELS) * scales.view(torch.bfloat16).float().view(blocks, 1)).flatten()[: self.count]


class Exchange:
    """One round's deltas, from when this rank sends its own."""

    def __init__(self, delta: Tensor, tokens: Sequence[int], world: World, group: Any) -> None:
        """`tokens`: the target tokens of each rank's delta; `group`: the ranks' connections for deltas alone, None
        where there are no others."""
        self.tokens, self.world = tokens, world
        self.begun, self.ended, self.work = time.perf_counter(), 0.0, None
        self.sent, self.everyone = delta, [delta]
        """What of this rank's delta the average has in it, and what all sent."""
        if group is not None:
            own = Packed.of(delta)
            self.sent, self.everyone = own.read(), [torch.empty_like(own.codes) for _ in tokens]
            self.work = dist.all_gather(self.everyone, own.codes, group=group, async_op=True)
            self.work.get_future().add_done_callback(self._end)

    def _end(self, _: object) -> None:
        self.ended = time.perf_counter()

    def average(self) -> Tensor:
        """The average of what all sent, each by the target tokens that it was trained on; waits for the last."""
        if not self.work:
            return self.sent
        with record_function(EXCHANGE):
            self.world.finish(self.work)
        self.ended = self.ended or time.perf_counter()
        total = torch.zeros_like(self.sent)
        for codes, tokens in zip(self.everyone, self.tokens, strict=True):
            if tokens:
                total += Packed(codes, total.numel()).read() * (tokens / sum(self.tokens))
        return total

    @property
    def took_s(self) -> float:
        """Seconds until the last delta was here."""
        return max(self.ended - self.begun, 1e-9)


def connections(world: World) -> Any:
    """Connections for deltas alone: a step's figures would wait behind their megabytes. None where no others are."""
    if not dist.is_initialized():
        return None
    group = dist.new_group(backend="gloo", timeout=world.timeout)
    dist.distributed_c10d._set_pg_timeout(world.patience, group)
    return group
