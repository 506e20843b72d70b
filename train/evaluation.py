"""Loss over held-out rows: the summed loss and its number of target tokens, so that parts can be added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from train.batches import to_tensors
from train.microbatch import chunks

if TYPE_CHECKING:
    from train.rows import Rows
    from train.sync import Shell


def loss_over(shell: Shell, rows: Rows, indices: list[int], *, micro_batch: int, device: str) -> tuple[float, int]:
    total = 0.0
    shell.eval()
    try:
        with torch.no_grad():
            for some in chunks(indices, micro_batch):
                total += float(shell(to_tensors(rows.batch(some), device)))
    finally:
        shell.train()
    return total, int(rows.targets[indices].sum()) if indices else 0
