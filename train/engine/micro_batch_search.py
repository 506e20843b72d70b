"""How many rows go through the model at a time: as many as memory allows, found by trial, lowered after an
out-of-memory. The search knows no GPU; it is given a function that tries, so that tests can simulate one. That
function for a real one is `gpu_trial`; what was computed is tried again with less by `with_less_each_time`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from train.engine import kept_decisions
from train.models.stream import stream_of

if TYPE_CHECKING:
    from torch import nn

    from train.engine.loop import Run
    from train.models.backends import Batch, LossModule
    from train.models.optimizer_step import Trained


Found = TypeVar("Found")


class OutOfMemoryError(Exception):
    """The device could not hold a micro-batch of this size."""


Trial = Callable[[int], int]
"""Runs forward and backward of so many rows; gives the peak in bytes, or raises OutOfMemoryError."""


def find(trial: Trial, *, ceiling_bytes: int, most: int) -> tuple[int, str]:
    """The largest power of two up to `most` that stays under the ceiling, each step predicted from the two before; and
    why."""
    peaks: dict[int, int] = {}
    size = 1
    while size <= most:
        if (predicted := _predict(peaks, size)) > ceiling_bytes:
            why = f"{size} would need {_gb(predicted)} of {_gb(ceiling_bytes)}"
            break
        try:
            peaks[size] = trial(size)
        except OutOfMemoryError:
            why = f"{size} ran out of memory"
            break
        if peaks[size] > ceiling_bytes:
            why = f"{size} took {_gb(peaks[size])} of {_gb(ceiling_bytes)}"
            del peaks[size]
            break
        size *= 2
    else:
        why = f"all {most} rows at once" if most in peaks else f"{size} are more than all {most} rows"
    if not peaks:
        raise OutOfMemoryError(f"not even one row fits: {why}")
    return max(peaks), f"by trial, peak {_gb(peaks[max(peaks)])}; {why}"


def room(trial: Trial, micro_batch: int, *, ceiling_bytes: int) -> int:
    """The bytes that are left beside so many rows."""
    try:
        return max(0, ceiling_bytes - trial(micro_batch))
    except OutOfMemoryError:
        return 0


def step_down(micro_batch: int) -> int:
    """The next smaller size after an out-of-memory; one row that does not fit is the end."""
    if micro_batch <= 1:
        raise OutOfMemoryError("one row alone does not fit; lower max_seq_length, or load_in 4bit")
    return micro_batch // 2


def chunks(rows: list[int], size: int) -> list[list[int]]:
    return [rows[i : i + size] for i in range(0, len(rows), size)]


def _predict(peaks: dict[int, int], size: int) -> int:
    """The peak predicted for this size: memory grows by a straight line, which two trials give."""
    if len(peaks) < 2:
        return 0
    a, b = sorted(peaks)[-2:]
    return peaks[b] + (peaks[b] - peaks[a]) * (size - b) // (b - a)


def _gb(count: int) -> str:
    return f"{count / 1e9:.1f} GB"


def gpu_trial(
    module: LossModule, trained: Trained, full_rows: Callable[[int], Batch], *, device: str, ceiling: float
) -> tuple[Trial, int]:
    """A function that takes one whole step of the real model on the real GPU and returns its peak, and how many bytes
    it may use: a part of what the GPU has left for this process."""
    free, _ = torch.cuda.mem_get_info(device)
    ceiling_bytes = int(ceiling * (free + torch.cuda.memory_reserved(device)))
    travels_bytes: int = 4 * sum(p.numel() for p in trained.parameters)  # the buffer in which gradients are exchanged

    def trial(micro_batch: int) -> int:
        batch = full_rows(micro_batch)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        try:
            whole_step(module, batch, trained.parameters, trained.optimizer)
            peak_bytes: int = torch.cuda.max_memory_allocated(device)
            return peak_bytes + travels_bytes
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from None

    return trial, ceiling_bytes


def whole_step(module: LossModule, batch: Batch, parameters: list[nn.Parameter], optimizer: Any) -> None:
    """Forward, backward and the optimizer's step, with all there that later steps have: the optimizer's state, and
    gradients of an earlier micro-batch. Afterwards all is as it was."""
    before = [parameter.detach().to("cpu", copy=True) for parameter in parameters]
    try:
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        module(batch).backward()
        optimizer.step()
    finally:
        optimizer.state.clear()
        with torch.no_grad():
            for parameter, weights in zip(parameters, before, strict=True):
                parameter.grad = None
                parameter.copy_(weights)


def with_less_each_time(run: Run, compute: Callable[[], Found], *, others_wait: Callable[[], bool]) -> Found:
    """What `compute` gives, with less on the card after each out-of-memory. `others_wait`: whether peers wait in the
    middle of it, whom only a restart helps."""
    while True:
        try:
            return compute()
        except torch.OutOfMemoryError:
            less = less_on_card(run)
            if others_wait():
                raise
        run.trained.optimizer.zero_grad(set_to_none=True)
        if run.device != "cpu":
            torch.cuda.empty_cache()
        run.reporter.warn(run.step, f"{run.world.node}: out of memory, continuing with {less}")


def less_on_card(run: Run) -> str:
    """Takes layers of a streamed base off the card; then fewer rows go through at a time. Kept for a restart, too."""
    stream = stream_of(run.module.model)
    if stream and stream.let_go():
        kept_decisions.keep(run.config, **{run.micro_batch_name + kept_decisions.ALL_STREAMED: "true"})
        return "all layers streamed"
    run.micro_batch = step_down(run.micro_batch)
    kept_decisions.keep(run.config, **{run.micro_batch_name: str(run.micro_batch)})
    return f"{run.micro_batch} rows at a time"
