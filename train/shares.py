"""Who takes how many rows of a step: whole rows by largest remainder. Pure arithmetic, the same on every node."""

from collections.abc import Sequence
from itertools import accumulate, pairwise


def split_rows(total: int, weights: Sequence[float]) -> list[int]:
    """`total` rows divided in proportion to `weights`; they always add up to `total`, and a weight of 0 gets none.

    >>> split_rows(16, [5, 2, 1])
    [10, 4, 2]
    """
    if min(weights, default=-1) < 0 or sum(weights) <= 0:
        raise ValueError(f"weights {list(weights)}: none may be negative and one must be above 0")
    exact = [total * weight / sum(weights) for weight in weights]
    counts = [int(part) for part in exact]
    # Ties go to the lower rank, so that every node comes to the same answer.
    by_remainder = sorted((i for i in range(len(weights)) if weights[i] > 0), key=lambda i: (counts[i] - exact[i], i))
    for i in range(total - sum(counts)):
        counts[by_remainder[i % len(by_remainder)]] += 1
    return counts


def spans(counts: Sequence[int]) -> list[tuple[int, int]]:
    """Contiguous slices [first, end) of a step for each rank."""
    return list(pairwise(accumulate(counts, initial=0)))
