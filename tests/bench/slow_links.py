"""Exact sync against `sync: local` on three lab hosts, at three link speeds.

    make bench PARTS=slow_links
    python -m tests.bench.slow_links 20-flat 20-local --repeats 1

All weights of `tiny` are trained (1.2 M, 4.9 MB an exchange), the same steps and rows with both: held-out loss after
equal tokens, and the time that the steps took.
"""

from __future__ import annotations

import functools
import sys
from itertools import count as counting
from typing import Any

from lab.lab import Lab
from tests.bench.page import bench
from tests.support import torchrun

ROWS, MICRO_BATCH, STEPS = 24, 4, 64
RATES = (1000, 100, 20)
NAME = "slow_links"
COUNTER = counting()


def one(lab: Lab, mbit: int, sync: str) -> dict[str, Any]:
    torchrun.links(lab.hosts, mbit)
    name = f"l{mbit}{sync}{next(COUNTER)}"
    run = torchrun.train(
        name, lab.hosts, rows_per_step=ROWS, max_steps=STEPS, micro_batch=MICRO_BATCH, sync=sync, wire="fp32",
        method="full", learning_rate=2e-3, eval_rows=96, save_every=STEPS, shares="14,7,3",
    )  # fmt: skip
    try:
        run.wait_for_step(2)
        torchrun.quotas(lab.hosts, on=True)
        run.end()
        steps = run.events("step")
        return {
            "loss": round(run.events("eval")[-1]["loss"], 4),
            "minutes": round(sum(step["step_s"] for step in steps) / 60, 3),
            "step_s": round(sum(step["step_s"] for step in steps[2:]) / (len(steps) - 2), 4),
            "sync": round(sum(step["sync_s"] for step in steps[2:]) / sum(step["step_s"] for step in steps[2:]), 4),
            "rounds": [event["steps"] for event in run.events("local")],
        }
    finally:
        torchrun.quotas(lab.hosts, on=False)
        run.stop()


PARTS = {f"{mbit}-{sync}": functools.partial(one, mbit=mbit, sync=sync) for mbit in RATES for sync in ("flat", "local")}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchlocal"), PARTS, table)


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| link, sync | held-out loss | s a step | of it all-reduce | inner steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case, runs in found.items():
        mbit, sync = case.split("-")
        figures = [
            " ".join(f"{run['loss']:.3f}" for run in runs),
            " ".join(f"{run['step_s']:.2f}" for run in runs),
            " ".join(f"{run['sync']:.0%}" for run in runs),
            " ".join(inner_steps(run["rounds"]) for run in runs) if sync == "local" else "",
        ]
        lines.append(f"| {mbit} Mbit/s, {'exact' if sync == 'flat' else sync} | {' | '.join(figures)} |")
    return lines


def inner_steps(rounds: list[int]) -> str:
    """Of the first round, and of those after it."""
    least, most = min(rounds), max(rounds)
    return f"4, then {least}" + (f" to {most}" if most > least else "")


if __name__ == "__main__":
    sys.exit(main())
