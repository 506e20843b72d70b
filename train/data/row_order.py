"""Which rows a step trains: a function of the data, the seed and the step alone, never of the cluster.

All rows stand in one endless stream, epoch after epoch, each epoch in an order of its own. Step k takes the stream's
positions [k·R, (k+1)·R), so no row is skipped at the end of an epoch and none comes twice within one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from train.data.mix_data_sets import RowsPart
from train.data.mix_data_sets import row_at as row_of_several


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
