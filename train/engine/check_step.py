"""What ends a run after a step: a loss that is no number, rows that were skipped or trained twice."""

from __future__ import annotations

import math
from collections.abc import Sequence

from train.engine.split_last_rows import CHECKSUMS
from train.engine.step_event import Ranks
from train.errors import Disagreement
from train.parallel.row_takers import RowTakers


class LossNotFiniteError(RuntimeError):
    """The loss is NaN or infinite: to continue would only destroy the adapter."""


def require_every_sample(ranks: Ranks, workers: RowTakers, checksum: int, step: int, kept: str) -> None:
    """Requires that what was dealt out by samples was computed, none skipped and none twice."""
    if sum(ranks[group[0]].fed.samples for group in workers.groups) % CHECKSUMS != checksum:
        raise Disagreement(
            "the nodes did not train the samples of this step, each once", f"found: at step {step}", kept
        )


def require_every_row(ranks: Ranks, workers: RowTakers, step: int, rows_per_step: int, kept: str) -> None:
    """Requires that the slices of all workers are the rows of this step, none skipped and none twice: shares are no
    rank's own. The stages of a pipe compute the same ones, as many at a time."""
    due = (step - 1) * rows_per_step
    where = (f"found: at step {step}", kept)
    for group in workers.groups:
        lead, name = ranks[group[0]].fed, workers.names[group[0]]
        if lead.first != due:
            raise Disagreement(
                f"the nodes do not train the same thing: the rows of {name} begin with number "
                f"{lead.first} of the stream, those before end with {due - 1}",
                *where,
            )
        for other in group[1:]:
            if ranks[other].fed != lead:
                raise Disagreement(
                    f"the stages of a pipe do not train the same rows: {name} and {workers.names[other]} differ", *where
                )
        due += lead.rows


def require_finite(ranks: Ranks, names: Sequence[str], *, scaled: bool) -> None:
    """Requires a finite loss and gradient; `scaled`: fp16's scaler skips a step whose gradient overflows."""

    def on(values: list[float]) -> str:
        return ", ".join(name for name, value in zip(names, values, strict=True) if not math.isfinite(value))

    losses = [rank.timing.loss_sum for rank in ranks]
    if at := on(losses):
        raise LossNotFiniteError(f"the loss is {sum(losses)} (from {at}); try a lower learning_rate")
    if not scaled and (at := on([rank.grad_norm for rank in ranks])):
        fix = "try a lower learning_rate, or precision=fp32 in place of fp16"
        raise LossNotFiniteError(f"the gradient is not finite (on {at}); {fix}")
