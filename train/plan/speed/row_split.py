"""Who takes how many rows of a step, and how long that takes. Pure arithmetic, the same on every node."""

from __future__ import annotations

import heapq
import math
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


def parts(count: int, size: int) -> list[range]:
    """The ranges that cut a count into parts of so many at a time."""
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def fastest_split(rows: int, speeds: Sequence[float], fixed_s: Sequence[float] = ()) -> list[int]:
    """The split whose slowest part ends first: each row to whoever would have it done earliest. `fixed_s` are seconds
    that a step takes each of them whatever its rows.

    Largest remainder would be nearest to the proportions, but not always the quickest: of 6 rows at speeds 10 and 1
    it gives one to the slow process, and the step takes 1 s instead of 0.6 s.
    """
    before = list(fixed_s) or [0.0] * len(speeds)
    counts = surely_taken(rows, speeds, before)
    ends = [(before[rank] + (counts[rank] + 1) / speed, rank) for rank, speed in enumerate(speeds)]
    heapq.heapify(ends)
    for _ in range(rows - sum(counts)):
        _, rank = heapq.heappop(ends)
        counts[rank] += 1
        heapq.heappush(ends, (before[rank] + (counts[rank] + 1) / speeds[rank], rank))
    return counts


def surely_taken(rows: int, speeds: Sequence[float], before: Sequence[float]) -> list[int]:
    """The rows that each has done well before all are done, if rows could be cut: only the last few must be dealt out
    one by one."""
    ranks, end_s = range(len(speeds)), math.inf
    while active := [rank for rank in ranks if before[rank] < end_s]:
        end_s = (rows + sum(before[i] * speeds[i] for i in active)) / sum(speeds[i] for i in active)
        if all(before[rank] < end_s for rank in active):
            break
    return [max(0, int((end_s - before[rank]) * speeds[rank]) - 1) for rank in ranks]


def compute_seconds(counts: Sequence[int], speeds: Sequence[float], fixed_s: Sequence[float] = ()) -> float:
    """How long the slowest computes."""
    before = list(fixed_s) or [0.0] * len(speeds)
    return max(fixed + count / speed for fixed, count, speed in zip(before, counts, speeds, strict=True))


def dealt_seconds(counts: Sequence[int], speeds: Sequence[float], fixed_s: Sequence[float] = ()) -> float:
    """How long the slowest computes where the samples of all last rows are dealt out (parallel/deal_samples.py): all
    need the same, unless one needs more than that for the rows that it keeps."""
    before = list(fixed_s) or [0.0] * len(speeds)
    takers = [taker for taker in zip(before, counts, speeds, strict=True) if taker[1]]
    whole = sum(count for _, count, _ in takers) + sum(fixed * speed for fixed, _, speed in takers)
    kept_s = (fixed + (count - 1) / speed for fixed, count, speed in takers)
    return max(whole / sum(speed for *_, speed in takers), *kept_s)


def parse_speeds(text: str) -> dict[str, float]:
    """`a=11.3,b=6.1` as names with rows per second, nothing as none; ValueError says which part is none."""
    speeds: dict[str, float] = {}
    for part in text.split(",") if text else []:
        name, _, number = part.strip().rpartition("=")
        try:
            speed = float(number)
        except ValueError:
            speed = 0
        if not name or not 0 < speed < math.inf:
            raise ValueError(f"'{part.strip()}' is not NAME=ROWS_PER_SECOND")
        speeds[name] = speed
    return speeds
