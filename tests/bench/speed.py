"""Rows per second of some lab hosts that train together, under their shares of the CPU."""

from __future__ import annotations

from collections.abc import Mapping
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


def last_rows(run: Training) -> list[int]:
    """What each took of the last step, in the order of its hosts."""
    return [run.events("step")[-1]["nodes"][host.name]["rows"] for host in run.hosts]


def at_once(hosts: list[Host], rows: list[int], count: int) -> list[float]:
    """Of each alone with its own rows, all at the same time: what machines that share a processor take from each other
    is taken from these as well."""
    runs = [begun([host], own) for host, own in zip(hosts, rows, strict=True)]
    try:
        for run in runs:
            run.wait_for_step(2)
        torchrun.quotas(hosts, on=True)
        begun = [len(run.events("step")) + 1 for run in runs]
        ends = [run.wait_for_step(first + count) for run, first in zip(runs, begun, strict=True)]
        steps = [run.events("step")[first:end] for run, first, end in zip(runs, begun, ends, strict=True)]
        found = [own * len(some) / sum(step["step_s"] for step in some) for own, some in zip(rows, steps, strict=True)]
        print(f"  alone at the same time: {[round(rate, 1) for rate in found]} rows/s", flush=True)
        return found
    finally:
        torchrun.quotas(hosts, on=False)
        for run in runs:
            run.stop()


def measured(run: Training, *, rows: int, skip: int, count: int, percent: Mapping[str, float] | None = None) -> float:
    try:
        first = run.wait_for_step(2)
        torchrun.quotas(run.hosts, on=True, percent=percent)
        run.wait_for_step(first + skip + count)
        steps = run.events("step")[first + skip : first + skip + count]
        shares = {name: node["rows"] for name, node in steps[-1].get("nodes", {}).items()}
        found = rows * count / sum(float(step["step_s"]) for step in steps)
        print(f"  {run.run}: {found:.1f} rows/s {shares or ''}", flush=True)
        return found
    finally:
        torchrun.quotas(run.hosts, on=False)
        run.stop()
