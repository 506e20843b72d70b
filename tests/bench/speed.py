"""Rows per second of some lab hosts that train together, under their shares of the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count as counting
from typing import Any

from lab.host import Host
from tests.support import torchrun
from tests.support.torchrun import Training

MICRO_BATCH = 4
COUNTER = counting()


def rows_per_second(
    hosts: list[Host], *, rows: int, skip: int, count: int, percent: Mapping[str, float] | None = None, **settings: Any
) -> float:
    """Of `count` steps after `skip` of them under quota; the start-up runs without."""
    return measured(begun(hosts, rows, **settings), rows=rows, skip=skip, count=count, percent=percent)


def begun(hosts: list[Host], rows: int, **settings: Any) -> Training:
    chosen = {"max_steps": 4000, "micro_batch": MICRO_BATCH} | settings
    return torchrun.train(f"b{next(COUNTER)}", hosts, rows_per_step=rows, **chosen)


def at_once(hosts: list[Host], rows: list[int], count: int) -> list[float]:
    """Of each alone with its own rows, all at the same time: what machines that share a processor take from each other
    is taken from these as well. One that had no rows gets one: what it could do belongs to the sum."""
    rows = [max(1, own) for own in rows]
    runs: list[Training] = []
    try:
        for host, own in zip(hosts, rows, strict=True):
            runs.append(begun([host], own))
        for run in runs:
            run.wait_for_step(2)
        torchrun.quotas(hosts, on=True)
        firsts = [len(run.events("step")) + 1 for run in runs]
        for run, first in zip(runs, firsts, strict=True):
            run.wait_for_step(first + count)
        steps = [run.events("step")[first : first + count] for run, first in zip(runs, firsts, strict=True)]
        found = [own * count / sum(step["step_s"] for step in some) for own, some in zip(rows, steps, strict=True)]
        print(f"  alone at the same time: {[round(rate, 1) for rate in found]} rows/s", flush=True)
        return found
    finally:
        torchrun.quotas(hosts, on=False)
        for run in runs:
            run.stop()


@dataclass(frozen=True)
class Window:
    """Some steps of a run."""

    rows_per_s: float
    rows: list[int]
    """What each host took of most of them, in the order of the hosts; none where the diary does not say it."""


def measured(run: Training, *, rows: int, skip: int, count: int, percent: Mapping[str, float] | None = None) -> float:
    return window(run, rows=rows, skip=skip, count=count, percent=percent).rows_per_s


def window(run: Training, *, rows: int, skip: int, count: int, percent: Mapping[str, float] | None = None) -> Window:
    """Of `count` steps after `skip` of them under quota; then the run ends."""
    try:
        first = run.wait_for_step(2)
        torchrun.quotas(run.hosts, on=True, percent=percent)
        run.wait_for_step(first + skip + count)
        steps = run.events("step")[first + skip : first + skip + count]
        shares = [tuple(step["nodes"][host.name]["rows"] for host in run.hosts) for step in steps if "nodes" in step]
        ((usual, _),) = Counter(shares).most_common(1) or [((), 0)]
        found = Window(rows * count / sum(float(step["step_s"]) for step in steps), list(usual))
        print(f"  {run.run}: {found.rows_per_s:.1f} rows/s {found.rows or ''}", flush=True)
        return found
    finally:
        torchrun.quotas(run.hosts, on=False)
        run.stop()
