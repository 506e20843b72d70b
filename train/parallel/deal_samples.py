"""Who computes which samples of the rows that are shared out: a step of few rows never fits the speeds in whole ones.

Each worker keeps its whole rows but the last, and the samples of all last rows are dealt out. Packed samples do not see
each other, so it is the same step whoever computes them. The same arithmetic on every node.
"""

from __future__ import annotations

from collections.abc import Sequence


def deal(kept: Sequence[float], samples: Sequence[tuple[int, int]], speeds: Sequence[float]) -> list[list[int]]:
    """Deals each of `samples`, number and tokens, to the worker that has it done first, the longest first; `kept`: the
    tokens of each worker's own rows, `speeds`: tokens per second; one of 0 gets none."""
    done, dealt = list(kept), [list[int]() for _ in speeds]
    workers = [at for at, speed in enumerate(speeds) if speed > 0]
    for number, tokens in sorted(samples, key=lambda one: (-one[1], one[0])):
        first = min(workers, key=lambda at: (done[at] + tokens) / speeds[at])
        done[first] += tokens
        dealt[first].append(number)
    return [sorted(own) for own in dealt]


def into_rows(samples: Sequence[tuple[int, int]], row_length: int) -> list[list[int]]:
    """Packs samples into as few rows as hold them, nearly as long as each other."""
    count = -(-sum(tokens for _, tokens in samples) // row_length)
    while True:
        rows, lengths = [list[int]() for _ in range(count)], [0] * count
        for number, tokens in sorted(samples, key=lambda one: (-one[1], one[0])):
            shortest = min(range(count), key=lambda at: lengths[at])
            lengths[shortest] += tokens
            rows[shortest].append(number)
        if max(lengths, default=0) <= row_length:
            return rows
        count += 1
