"""Which rows a step trains, as tensors, and the loss over rows that are held out.

The rows are a function of the data, the seed and the step alone, never of the cluster. All rows stand in one endless
stream, epoch after epoch, each epoch in an order of its own. Step k takes the stream's positions [k·R, (k+1)·R), so no
row is skipped at the end of an epoch and none comes twice within one.

The position ids, new for each sample, are all that keeps packed samples apart: given them and no attention mask,
transformers builds a block-diagonal mask (shown in tests/train/test_packing_exact.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from train.data.mix_data_sets import RowsPart
from train.data.mix_data_sets import row_at as row_of_several
from train.engine.micro_batch_search import chunks
from train.models.backends import to_tensors

if TYPE_CHECKING:
    from train.data.rows import Rows
    from train.models.backends import LossModule


@lru_cache(maxsize=2)  # a step touches at most the epoch that ends and the one that begins, as long as R <= rows
def _epoch(rows: int, seed: int, epoch: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64([seed, epoch])).permutation(rows)


def row_at(position: int, *, rows: int, seed: int) -> int:
    return int(_epoch(rows, seed, position // rows)[position % rows])


def rows_of_step(step: int, *, rows: int, rows_per_step: int, seed: int, parts: Sequence[RowsPart] = ()) -> list[int]:
    """The rows of step `step`, counted from 0; `parts`: of several data sets."""
    first = step * rows_per_step
    if parts:
        return [row_of_several(position, parts, seed) for position in range(first, first + rows_per_step)]
    return [row_at(position, rows=rows, seed=seed) for position in range(first, first + rows_per_step)]


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
