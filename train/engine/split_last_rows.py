"""A step whose last rows are dealt out by samples (parallel/deal_samples.py), as this run has it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from train.data.rows import PackedRows
from train.parallel.deal_samples import deal, into_rows

if TYPE_CHECKING:
    from train.data.rows import Rows
    from train.engine.loop import Run
    from train.engine.rows_ahead import Made
    from train.parallel.row_takers import RowTakers
    from train.plan.settings.read_settings import RunConfig


CHECKSUMS = 1 << 32
"""A checksum of samples is below this."""


def may_deal(config: RunConfig, rows: Rows, workers: RowTakers) -> bool:
    """Whether a sample may be computed beside others than those of its row. Where random numbers are drawn they are of
    a place in a row; and the stages of a pipe pass whole rows on."""
    return isinstance(rows, PackedRows) and rows.packs and not config.draws and not workers.cut


def row_tokens(run: Run) -> float:
    """How many tokens a row of the data has on average: by it what was computed counts as rows. 0 where rows stay
    whole."""
    data = run.rows
    return len(data.tokens) / len(data) if run.balance.deals and isinstance(data, PackedRows) else 0.0


@dataclass(frozen=True)
class Dealt:
    samples: list[list[int]]
    """The samples of each worker, beside its whole rows."""
    targets: list[int]
    """Target tokens of all that each worker computes."""
    checksum: int
    """The sum over all samples of the step; what the workers have computed must add up to it."""

    def beside(self, made: Made, rows: PackedRows, mine: list[int], worker: int) -> Made:
        """What a worker computes: its rows but the last, which are made, and what it is dealt beside them. In the books
        all of its rows are its own."""
        (batches, fed), samples = made, self.samples[worker]
        lengths = rows.lengths(samples)
        packed = into_rows(list(zip(samples, lengths, strict=True)), rows.row_length)
        batches = [*batches, *(rows.packed([row]) for row in packed)]  # one by one: none is padded to another
        fed.enter(mine[-1:], sum(lengths))
        fed.samples = checksum([*samples, *(sample for row in mine[:-1] for sample in rows.samples_of(row))])
        return batches, fed


def checksum(samples: Iterable[int]) -> int:
    """A sum over samples in any order, which shows one that is missing or comes twice."""
    return sum(zlib.crc32(sample.to_bytes(8, "little")) for sample in samples) % CHECKSUMS


def dealt(run: Run, rows: list[int], slices: Sequence[tuple[int, int]]) -> Dealt | None:
    """The step with these rows; None where all compute their whole rows."""
    speeds, data = run.balance.dealt_by, run.rows
    if speeds is None or run.step_rows or not isinstance(data, PackedRows):
        return None
    speeds = [speed if end > first else 0.0 for speed, (first, end) in zip(speeds, slices, strict=True)]
    whole = [rows[first : max(first, end - 1)] for first, end in slices]
    last = [sample for first, end in slices if end > first for sample in data.samples_of(rows[end - 1])]
    samples = deal([data.token_count(own) for own in whole], list(zip(last, data.lengths(last), strict=True)), speeds)
    targets = [int(data.targets[own].sum()) + data.targets_of(some) for own, some in zip(whole, samples, strict=True)]
    return Dealt(samples, targets, checksum(sample for row in rows for sample in data.samples_of(row)))
