"""What all ranks did in a step, and the step event made of it: the same on every rank."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields, replace
from typing import Any

import numpy as np

from train.parallel.rebalance import Balance
from train.parallel.row_takers import RowTakers
from train.parallel.strategy import StepTiming

Ranks = list["RankStep"]
TIMINGS = len(fields(StepTiming))


@dataclass(kw_only=True)
class Fed:
    """The rows that a rank fed to its model in a step: the event log proves from it what was trained."""

    micro_batch: int
    first: int = 0
    """Where the rows begin in the stream of all rows."""
    rows: int = 0
    rows_crc: int = 0
    tokens: int = 0
    samples: int = 0
    """A checksum of the samples that it computed, where rows are dealt out by samples."""

    def enter(self, rows: Sequence[int], tokens: int) -> None:
        """Counts rows that follow those before, and how many tokens are computed of them or in their place."""
        self.rows += len(rows)
        self.rows_crc = zlib.crc32(np.array(rows, dtype="<i8").tobytes(), self.rows_crc)
        self.tokens += tokens


@dataclass(frozen=True)
class RankStep:
    """One rank's step."""

    timing: StepTiming
    fed: Fed
    grad_norm: float
    """The norm of the whole gradient; of the rank's own, where it takes inner steps."""
    step_s: float
    gpu_gb: float
    seen: tuple[float, ...] = ()
    """The sums of the recipe's metrics over its rows, where a step has such."""

    def numbers(self) -> list[float]:
        facts = (*astuple(self.timing), self.grad_norm, self.step_s, self.gpu_gb, *astuple(self.fed), *self.seen)
        return [float(fact) for fact in facts]

    @classmethod
    def of(cls, numbers: Sequence[float]) -> RankStep:
        timing, rest = numbers[:TIMINGS], numbers[TIMINGS:]
        grad_norm, step_s, gpu_gb = rest[:3]
        names = [field.name for field in fields(Fed)]
        fed = Fed(**dict(zip(names, map(int, rest[3:]), strict=False)))
        return cls(StepTiming(*timing), fed, grad_norm, step_s, gpu_gb, tuple(rest[3 + len(names) :]))


def seen_by(ranks: Ranks) -> list[float]:
    """The sums of the recipe's metrics over all rows of the step."""
    return [sum(values) for values in zip(*(rank.seen for rank in ranks), strict=True)]


def step_event(
    ranks: Ranks,
    workers: RowTakers,
    balance: Balance,
    *,
    step: int,
    lr: float,
    targets: Sequence[int],
    sync: str,
    row_tokens: float,
) -> dict[str, Any]:
    """The event of one step; `targets`: the target tokens of each worker; `row_tokens`: of a row of the data, where
    rows are dealt out by samples, else 0."""
    whole = max(1, sum(targets))
    leads = [ranks[group[0]] for group in workers.groups]
    sync_s = min(rank.timing.blocked_s for rank in ranks)  # who came last waited for nobody: its time is pure transfer
    return {
        "step": step,
        "loss": sum(rank.timing.loss_sum for rank in ranks) / whole,
        "lr": lr,
        "grad_norm": sum(rank.grad_norm * count for rank, count in zip(leads, targets, strict=True)) / whole,
        "tokens": sum(rank.fed.tokens for rank in leads),
        "targets": sum(targets),
        "step_s": round(ranks[0].step_s, 5),
        "sync_s": round(sync_s, 5),
        "sync": sync,
        "shares": balance.shares,
        "nodes": {
            workers.names[at]: _node(ranks[at], sync_s, row_tokens, stage=workers.layers[at], leads=workers.leads(at))
            for group in workers.groups
            for at in group
        },
    }


def _node(
    rank: RankStep, sync_s: float, row_tokens: float, *, stage: tuple[int, int] | None, leads: bool
) -> dict[str, Any]:
    """One rank's part of the step event; the rows of a pipe are counted once, where they begin."""
    fed, timing = rank.fed, rank.timing
    bubble_s = max(0.0, timing.pipe_s - timing.compute_s)
    counted = fed if leads else replace(fed, first=fed.first + fed.rows, rows=0, rows_crc=0)
    pipe = {"layers": list(stage), "pipe_s": round(timing.pipe_s, 5)} if stage else {}
    return {
        **{name: getattr(counted, name) for name in ("rows", "first", "rows_crc", "micro_batch")},
        "part": round(fed.tokens / row_tokens, 4) if row_tokens else counted.rows,
        "compute_s": round(timing.compute_s, 5),
        "wait_s": round(timing.blocked_s - sync_s + bubble_s, 5),
        "tokens_per_s": round(fed.tokens / max(timing.compute_s, 1e-9), 1),
        "gpu_gb": round(rank.gpu_gb, 3),
        **pipe,
    }
