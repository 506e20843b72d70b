"""One whole step of the real model on a real GPU, and its peak of memory: what microbatch.find asks for."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from train import microbatch
from train.rows import Rows
from train.sync import Batch, Shell


def gpu_trial(
    shell: Shell, parameters: list[nn.Parameter], optimizer: Any, rows: Rows, *, device: str, ceiling: float
) -> tuple[microbatch.Trial, int]:
    """The function that tries, and how many bytes it may use: a part of what the card has left for this process."""
    free, _ = torch.cuda.mem_get_info(device)
    ceiling_bytes = int(ceiling * (free + torch.cuda.memory_reserved(device)))
    travels_bytes: int = 4 * sum(p.numel() for p in parameters)  # the buffer in which gradients are exchanged

    def trial(micro_batch: int) -> int:
        shape = (micro_batch, rows.row_length)
        ids = torch.ones(shape, dtype=torch.long, device=device)
        positions = torch.arange(rows.row_length, device=device).expand(shape)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        try:
            whole_step(shell, {"input_ids": ids, "labels": ids, "position_ids": positions}, parameters, optimizer)
            peak_bytes: int = torch.cuda.max_memory_allocated(device)
            return peak_bytes + travels_bytes
        except torch.OutOfMemoryError as error:
            raise microbatch.OutOfMemoryError(str(error)) from None

    return trial, ceiling_bytes


def whole_step(shell: Shell, batch: Batch, parameters: list[nn.Parameter], optimizer: Any) -> None:
    """Forward, backward and the optimizer's step, whose state takes memory too; afterwards all is as it was."""
    before = [parameter.detach().to("cpu", copy=True) for parameter in parameters]
    try:
        shell(batch).backward()
        optimizer.step()
    finally:
        optimizer.state.clear()
        with torch.no_grad():
            for parameter, weights in zip(parameters, before, strict=True):
                parameter.grad = None
                parameter.copy_(weights)
