"""The loss over rows that are held out, of which nothing is learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from train.engine.micro_batch_search import chunks
from train.models.backends import to_tensors

if TYPE_CHECKING:
    from train.data.rows import Rows
    from train.models.backends import LossModule


def loss_over(
    module: LossModule, rows: Rows, indices: list[int], *, micro_batch: int, device: str
) -> tuple[float, int]:
    """The summed loss and its number of target tokens, so that parts can be summed."""
    sums, targets = sums_over(module, rows, indices, micro_batch=micro_batch, device=device)
    return sums[0], targets


def sums_over(
    module: LossModule, rows: Rows, indices: list[int], *, micro_batch: int, device: str
) -> tuple[list[float], int]:
    """The summed loss with the sums of the recipe's metrics behind it, and the number of target tokens."""
    total = np.zeros(1 + len(module.metrics))
    module.eval()
    try:
        with torch.no_grad():
            for some in chunks(indices, micro_batch):
                total += module.measure(to_tensors(rows.batch(some), device)).double().cpu().numpy()
    finally:
        module.train()
    return total.tolist(), int(rows.targets[indices].sum()) if indices else 0
