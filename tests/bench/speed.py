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
    chosen = {"max_steps": 400, "micro_batch": MICRO_BATCH} | settings
    run = torchrun.train(f"b{next(COUNTER)}", hosts, rows_per_step=rows, **chosen)
    return measured(run, rows=rows, skip=skip, count=count, percent=percent)


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
