"""The rows of a step as arrays, and the books on them: the next step's are made in a thread while this one computes.

What is ahead is what the shares of now ask for. Where the next step has other shares, another micro-batch, or begins
elsewhere after a rollback, it is dropped and made again.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from train.engine.micro_batch_search import chunks
from train.engine.step_event import Fed
from train.models.row_noise import ROWS

if TYPE_CHECKING:
    from train.data.rows import Rows
    from train.recipes import StepRows

Arrays: TypeAlias = dict[str, NDArray[Any]]
Made: TypeAlias = tuple[list[Arrays], Fed]


def arrays_of(due: Rows | StepRows, mine: list[int], fed: Fed, *, draws: bool) -> Made:
    """The micro-batches of some rows, entered in the books."""
    batches = []
    for rows in chunks(mine, fed.micro_batch):
        first = fed.first + fed.rows
        batch = due.batch(rows, first)
        if draws:
            batch[ROWS] = np.arange(first, first + len(rows))
        fed.enter(rows, due.token_count(rows))
        batches.append(batch)
    return batches, fed


class Ahead:
    """A rank's share of the next step."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="rows ahead")
        self.coming: Future[Made] | None = None
        self.key: tuple[int, int, int] | None = None
        """Where its rows begin in the stream of all rows, how many they are, and how many at a time: as the order of
        rows is fixed, no more is to be known of them."""

    def begin(self, make: Callable[[], Made], key: tuple[int, int, int]) -> None:
        self.coming, self.key = self.thread.submit(make), key

    def take(self, make: Callable[[], Made], key: tuple[int, int, int]) -> Made:
        """What was begun, where it is this; else it is made now."""
        coming, self.coming = self.coming, None
        return coming.result() if coming and key == self.key else make()
