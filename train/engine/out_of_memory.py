"""What is computed is tried again after an out-of-memory, with less on the card."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import torch

from train.engine import kept_decisions
from train.engine.micro_batch_search import step_down
from train.models.stream import stream_of

if TYPE_CHECKING:
    from train.engine.loop import Run

Found = TypeVar("Found")


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
