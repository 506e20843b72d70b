"""What `python -m train plan --speeds` predicts, against what lab hosts then take.

    make bench PARTS=predict
    python -m tests.bench.predict 60/30-20-12-flat --repeats 2

Each host is calibrated alone, under its CPU share, as `train calibrate` does on a node; the run is predicted from these
speeds and the set links, and the median step of the balanced run is held against it.
"""

from __future__ import annotations

import functools
import json
import statistics
import sys
from dataclasses import dataclass
from itertools import count as counting
from typing import Any

from lab.host import Host
from lab.lab import Lab
from lab.layer import ENV
from tests.bench.page import bench
from tests.support import torchrun
from tests.support.torchrun import AT, environment
from train.plan.speedup import Machine, Traffic, together, together_local

MICRO_BATCH, ROW_LENGTH, LORA_R = 4, 256, 16
SETTLE, MEASURED = 14, 10
AIM = 0.15
NAME = "predict"
COUNTER = counting()


@dataclass(frozen=True)
class Case:
    percents: tuple[int, ...]
    """Of a core, a host each."""
    mbit: int
    rows: int
    sync: str = "flat"

    def __str__(self) -> str:
        return f"{'/'.join(map(str, self.percents))}-{self.mbit}-{self.rows}-{self.sync}"


CASES = (
    Case((60, 30, 15), 1000, 24),
    Case((60, 30, 15), 1000, 48),
    Case((60, 30, 15), 100, 24),
    Case((60, 30, 15), 20, 24),
    Case((60, 30, 15), 20, 48),
    Case((35, 35, 35), 1000, 24),
    Case((35, 35, 35), 20, 24),
    Case((60, 30), 1000, 24),
    Case((60, 30), 20, 12),
    Case((60, 30, 15), 20, 24, "local"),
)


def calibrated(host: Host, percent: int) -> dict[str, float]:
    """Rows per second and seconds beside them, of this host alone under its share."""
    torchrun.quotas([host], on=True, percent={host.name: percent})
    try:
        words = ["-m", "train", "calibrate", "--model", "tiny", "--max-seq-length", str(ROW_LENGTH), "--json"]
        words += ["--micro-batch", str(MICRO_BATCH), "--lora-r", str(LORA_R)]
        home = f"MOTLEY_HOME={AT}/calibrated-{percent}"
        said = host.run(*environment(host), home, f"{ENV}/bin/python", *words, timeout_s=240)
        return dict(json.loads(said.strip().splitlines()[-1])["speed"])
    finally:
        torchrun.quotas([host], on=False)


def predicted(case: Case, speeds: list[dict[str, float]], weights: int) -> float:
    machines = [
        Machine(f"n{i}", speed["rows_per_s"], float(case.mbit), speed["fixed_s"]) for i, speed in enumerate(speeds)
    ]
    traffic = Traffic(weights)
    if case.sync == "local":
        return together_local(machines, case.rows, traffic)[0].step_s
    return together(machines, case.rows, traffic.bytes).step_s


def measured(case: Case, hosts: list[Host]) -> tuple[float, int]:
    """The median step of a balanced run, and how many weights it trains."""
    percent = {host.name: share for host, share in zip(hosts, case.percents, strict=True)}
    name = f"p{next(COUNTER)}"
    run = torchrun.train(
        name, hosts, rows_per_step=case.rows, max_steps=400,
        micro_batch=MICRO_BATCH, sync=case.sync, wire="fp32", lora_r=LORA_R,
    )  # fmt: skip
    try:
        first = run.wait_for_step(2)
        torchrun.quotas(hosts, on=True, percent=percent)
        count = MEASURED if case.sync != "local" else 4 * MEASURED
        run.wait_for_step(first + SETTLE + count)
        steps = run.events("step")[first + SETTLE : first + SETTLE + count]
        times = [step["step_s"] for step in steps]
        seconds = statistics.mean(times) if case.sync == "local" else statistics.median(times)
        return seconds, int(run.events("start")[-1]["weights"])
    finally:
        torchrun.quotas(hosts, on=False)
        run.stop()


def one(lab: Lab, case: Case) -> dict[str, Any]:
    hosts = lab.hosts[: len(case.percents)]
    torchrun.links(hosts, case.mbit)
    speeds = [calibrated(host, percent) for host, percent in zip(hosts, case.percents, strict=True)]
    took, weights = measured(case, hosts)
    said = predicted(case, speeds, weights)
    return {"foretold_s": round(said, 4), "took_s": round(took, 4), "off": round(said / took - 1, 4)}


PARTS = {str(case): functools.partial(one, case=case) for case in CASES}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchpredict"), PARTS, table)


def table(found: dict[str, list[dict[str, float]]]) -> list[str]:
    lines = [
        "| % of a core | Mbit/s | rows | sync | predicted s | took s | off |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for case, runs in found.items():
        said, took = (statistics.median(run[name] for run in runs) for name in ("foretold_s", "took_s"))
        off = " ".join(f"{run['off']:+.0%}" for run in runs)
        lines.append(f"| {case.replace('-', ' | ')} | {said:.3f} | {took:.3f} | {off} |")
    worst = max(abs(run["off"]) for runs in found.values() for run in runs)
    within = sum(abs(run["off"]) <= AIM for runs in found.values() for run in runs)
    count = sum(map(len, found.values()))
    return [*lines, "", f"Within {AIM:.0%}: {within} of {count} runs; furthest off {worst:.0%}."]


if __name__ == "__main__":
    sys.exit(main())
