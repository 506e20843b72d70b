"""Rows per second of some lab hosts that train together, under their shares of the CPU."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count as counting
from statistics import mean
from typing import Any

from lab.host import Host
from tests.support import torchrun
from tests.support.torchrun import Training

MICRO_BATCH = 4
COUNTER = counting()


def begun(hosts: list[Host], rows: int, **settings: Any) -> Training:
    chosen = {"max_steps": 4000, "micro_batch": MICRO_BATCH} | settings
    return torchrun.train(f"b{next(COUNTER)}", hosts, rows_per_step=rows, **chosen)


@dataclass(frozen=True)
class Window:
    """Some steps of a run."""

    rows_per_s: float
    rows: list[int]
    """What each host took of most of them, in the order of the hosts; none where the diary does not say it."""
    computing: list[float]
    """Rows per second of each host while it computed."""
    spent: dict[str, float]
    """Where the seconds of a step went, on average."""

    @classmethod
    def of(cls, run: Training, rows: int, steps: list[dict[str, Any]]) -> Window:
        seen = [[step["nodes"][host.name] for host in run.hosts] for step in steps if "nodes" in step]
        ((usual, _),) = Counter(tuple(node["rows"] for node in step) for step in seen).most_common(1) or [((), 0)]
        computing = [
            sum(node.get("part", node["rows"]) for node in host) / max(1e-9, sum(node["compute_s"] for node in host))
            for host in zip(*seen, strict=True)
        ]
        rate = rows * len(steps) / sum(float(step["step_s"]) for step in steps)
        return cls(rate, list(usual), computing, where_seconds_go(steps))


SLOWEST, LATEST, EXCHANGE, REST = "the slowest computes", "another was later", "exchange", "rest"


def where_seconds_go(steps: list[dict[str, Any]]) -> dict[str, float]:
    """Of a step, on average: what the host that is the slowest on average computes; how much longer that takes because
    in each step another may be the latest; the exchange that no computing hides; the rest. Empty without nodes."""
    computed = [[float(node["compute_s"]) for node in step["nodes"].values()] for step in steps if step.get("nodes")]
    if not computed:
        return {}
    slowest, latest = max(map(mean, zip(*computed, strict=True))), mean(map(max, computed))
    exchange, whole = (mean(float(step[name]) for step in steps) for name in ("sync_s", "step_s"))
    rest = whole - latest - exchange
    return {SLOWEST: slowest, LATEST: latest - slowest, EXCHANGE: exchange, REST: rest}


def window(run: Training, *, rows: int, skip: int, count: int) -> Window:
    """Of `count` steps after `skip` of them under quota, the start-up without; then the run ends."""
    try:
        first = run.wait_for_step(2)
        torchrun.quotas(run.hosts, on=True)
        run.wait_for_step(first + skip + count)
        found = Window.of(run, rows, run.events("step")[first + skip : first + skip + count])
        print(f"  {run.run}: {found.rows_per_s:.1f} rows/s {found.rows or ''}", flush=True)
        return found
    finally:
        torchrun.quotas(run.hosts, on=False)
        run.stop()
