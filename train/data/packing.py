"""Samples into rows: cut to the length of a row, then best fit among a bounded number of open rows, so that memory does
not grow with the data."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from train.data.read_records import Tally

Sample = tuple[Sequence[int], Sequence[int]]
"""Tokens, and for each whether it is trained on."""
Row = list[Sample]

OPEN_ROWS = 64


def cut(sample: Sample, row_length: int, tally: Tally, *, is_chat: bool) -> Iterator[Sample]:
    """A text continues in the next row; a conversation is cut, and skipped where none of its answer remains."""
    tokens, trained = sample
    tally.longest = max(tally.longest, len(tokens))
    if is_chat:
        tally.truncated += len(tokens) > row_length
        tokens, trained = tokens[:row_length], trained[:row_length]
    for start in range(0, len(tokens), row_length):
        piece = tokens[start : start + row_length], trained[start : start + row_length]
        if 1 in piece[1][1:]:  # nothing predicts a first token
            yield piece
        elif is_chat:
            tally.emptied += 1


class Packer:
    """Give it samples, get rows back as they fill up. The same samples in the same order make the same rows."""

    def __init__(self, row_length: int, pack: bool = True) -> None:
        self.row_length = row_length
        self.pack = pack
        self.open: list[tuple[int, int]] = []  # (free tokens, number of the row), sorted
        self.rows: dict[int, Row] = {}
        self.opened = 0

    def add(self, sample: Sample) -> Iterator[Row]:
        length = len(sample[0])
        assert 0 < length <= self.row_length
        if not self.pack:
            yield [sample]
            return
        best = bisect_left(self.open, (length, -1))
        if best < len(self.open):
            free, number = self.open.pop(best)
        else:
            free, number = self.row_length, self.opened
            self.opened += 1
            self.rows[number] = []
        self.rows[number].append(sample)
        insort(self.open, (free - length, number))
        if self.open[0][0] == 0 or len(self.open) > OPEN_ROWS:
            yield self._close()

    def finish(self) -> Iterator[Row]:
        while self.open:
            yield self._close()

    def _close(self) -> Row:
        """The fullest row is done: it has the least to gain from waiting."""
        _, number = self.open.pop(0)
        return self.rows.pop(number)
