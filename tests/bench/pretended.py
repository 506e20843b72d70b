"""The training program on a machine whose speed is pretended: rows take as long as a card of this speed would take,
however busy the computer below it is. Everything else of a step is real: its rows, the exchange over the link, the
optimizer, the event log.

    python -m tests.bench.pretended 0.6 256 gpu-master=4,gpu-worker-1=2 run --config=…

0.6: seconds in which a machine of speed 1 computes a row of 256 tokens, shorter ones in proportion. A third is the
forward pass; in the other two the gradients come one after another, the last layer's first.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import torch
from torch import Tensor

from train import __main__
from train.models.backends import Batch, LossModule

FORWARD = 1 / 3


def wait_until(at: float) -> None:
    if (left := at - time.monotonic()) > 0:
        time.sleep(left)


class Paused(torch.autograd.Function):  # type: ignore[misc]
    """A weight whose layer is computed at one time, and whose gradient is there at another."""

    @staticmethod
    def forward(ctx: Any, weight: Tensor, then: float, gradient_at: float) -> Tensor:
        wait_until(then)
        ctx.gradient_at = gradient_at
        return weight.view_as(weight)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        wait_until(ctx.gradient_at)
        return gradient, None, None


def played(module: LossModule, seconds: float) -> Tensor:
    began = time.monotonic()
    weights = [p for p in module.model.parameters() if p.requires_grad]
    parts = []
    for at, weight in enumerate(weights):
        then = began + seconds * FORWARD * (at + 1) / len(weights)
        gradient_at = began + seconds * (1 - (1 - FORWARD) * at / len(weights))
        parts.append((Paused.apply(weight, then, gradient_at) * 0).sum())
    return torch.stack(parts).sum()


def rows_in(batch: Batch, row_length: int) -> float:
    """How many rows of full length the tensors of a micro-batch are, their padding too."""
    values = next(iter(batch.values()))
    return len(values) * (values.shape[1] / row_length if "input_ids" in batch else 1.0)


def pretend(row_s: float, speed: float, row_length: int) -> None:
    forward = LossModule.forward

    def plays(self: LossModule, batch: Batch | None) -> Tensor:
        if batch is None or not torch.is_grad_enabled():
            return forward(self, batch)
        return played(self, row_s / speed * rows_in(batch, row_length))

    setattr(LossModule, "forward", plays)  # noqa: B010 - to mypy a method is no variable


def main() -> int:
    row_s, row_length, speeds, *words = sys.argv[1:]
    found = dict(one.split("=") for one in speeds.split(","))
    pretend(float(row_s), float(found[os.environ["MOTLEY_NODE"]]), int(row_length))
    return __main__.main(words)


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)
