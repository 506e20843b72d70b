"""One micro-batch through the real model on a real GPU, and its peak of memory: what microbatch.find asks for."""

from __future__ import annotations

import torch
from torch import nn

from train import microbatch
from train.rows import Rows
from train.sync import Shell


def gpu_trial(
    shell: Shell, parameters: list[nn.Parameter], rows: Rows, device: str, ceiling: float
) -> tuple[microbatch.Trial, int]:
    """The function that tries, and how many bytes it may use: a part of what the card has left for this process."""
    free, _ = torch.cuda.mem_get_info(device)
    ceiling_bytes = int(ceiling * (free + torch.cuda.memory_reserved(device)))
    weights = sum(p.numel() for p in parameters)
    later_bytes: int = weights * 4 * 3  # AdamW's two moments and the buffer in which gradients travel

    def trial(micro_batch: int) -> int:
        shape = (micro_batch, rows.row_length)
        ids = torch.ones(shape, dtype=torch.long, device=device)
        positions = torch.arange(rows.row_length, device=device).expand(shape)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        try:
            shell({"input_ids": ids, "labels": ids, "position_ids": positions}).backward()
            peak_bytes: int = torch.cuda.max_memory_allocated(device)
            return peak_bytes + later_bytes
        except torch.OutOfMemoryError as error:
            raise microbatch.OutOfMemoryError(str(error)) from None
        finally:
            for parameter in parameters:
                parameter.grad = None

    return trial, ceiling_bytes
