"""Exact sync against `sync: local` on three lab hosts, at three link speeds: how near each comes to the sum of the
machines' speeds. Beside it stands what local steps cost in loss, which local_loss.py measures.

    make bench PARTS=slow_links
    python -m tests.bench.slow_links 20-flat 20-local --repeats 1

The speeds are pretended, 4 : 2 : 1 as in near_sum.py; all weights of `tiny` travel (1.2 M). Links, exchange, optimizer
and event log are real.
"""

from __future__ import annotations

import functools
import statistics
import sys
from itertools import count as counting
from typing import Any

from lab.lab import Lab
from tests.bench.page import bench, spread
from tests.support import torchrun

ROWS, MICRO_BATCH, STEPS = 24, 4, 48
RATES = (1000, 100, 20)
SPEEDS, ROW_S, ROW_LENGTH = (4, 2, 1), 0.6, 256
SUM = sum(SPEEDS) / ROW_S
"""Rows per second of all machines, each alone."""
SETTLED = 8
"""Steps until shares and rounds are found."""
NAME = "slow_links"
COUNTER = counting()
LOSS = ("adapter", "nothing")
FORMS = {
    "exact": "exact sync",
    "1": "1 inner step",
    "1 plain": "1 inner step, plain averaging (rate 1, momentum 0)",
    "4": "4 inner steps",
    "16": "16 inner steps",
    "4 waits": "4 inner steps, deltas waited for, unrounded",
    "16 waits": "16 inner steps, deltas waited for, unrounded",
    "4 plain": "4 inner steps, plain averaging (rate 1, momentum 0)",
    "4 momentum 0.9": "4 inner steps, momentum 0.9 (DiLoCo's)",
}


def one(lab: Lab, mbit: int, sync: str) -> dict[str, Any]:
    torchrun.links(lab.hosts, mbit)
    named = ",".join(f"{host.name}={speed}" for host, speed in zip(lab.hosts, SPEEDS, strict=True))
    run = torchrun.train(
        f"l{mbit}{sync}{next(COUNTER)}", lab.hosts, rows_per_step=ROWS, max_steps=STEPS, micro_batch=MICRO_BATCH,
        sync=sync, method="full", save_every=STEPS, speeds=named,
        program=("tests.bench.pretended", str(ROW_S), str(ROW_LENGTH), named),
    )  # fmt: skip
    try:
        run.end()
        steps = run.events("step")[SETTLED:]
        whole_s = sum(step["step_s"] for step in steps)
        return {
            "of the sum": round(ROWS * len(steps) / whole_s / SUM, 4),
            "step_s": round(whole_s / len(steps), 4),
            "sync": round(sum(step["sync_s"] for step in steps) / whole_s, 4),
            "rounds": [event["steps"] for event in run.events("local")],
        }
    finally:
        run.stop()


PARTS = {f"{mbit}-{sync}": functools.partial(one, mbit=mbit, sync=sync) for mbit in RATES for sync in ("flat", "local")}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchlocal"), PARTS, table)


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| link, sync | of the sum of the machines' speeds | s a step | of it all-reduce | inner steps |",
        "| --- | --- | --- | --- | --- |",
    ]
    for part in (part for part in PARTS if part in found):
        runs, (mbit, sync) = found[part], part.split("-")
        figures = [
            spread([run["of the sum"] for run in runs], "{:.0%}"),
            spread([run["step_s"] for run in runs], "{:.2f}"),
            spread([run["sync"] for run in runs], "{:.0%}"),
            "; ".join(dict.fromkeys(inner_steps(run["rounds"]) for run in runs)) if sync == "local" else "",
        ]
        lines.append(f"| {mbit} Mbit/s, {'exact' if sync == 'flat' else sync} | {' | '.join(figures)} |")
    return [*lines, *losses(found)]


def losses(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    rows = {words: [loss(found, case, form) for case in LOSS] for form, words in FORMS.items()}
    lines = [f"| {words} | {' | '.join(cells)} |" for words, cells in rows.items() if any(cells)]
    head = ["", "| held-out loss after as many rows | adapter | all weights, from nothing |", "| --- | --- | --- |"]
    return [*head, *lines] if lines else []


def loss(found: dict[str, list[dict[str, Any]]], case: str, form: str) -> str:
    """Of this form, and how far it is from exact sync."""
    if not (runs := found.get(f"{case}-{form}")):
        return ""
    own, exact = (statistics.median(run["loss"] for run in some) for some in (runs, found[f"{case}-exact"]))
    return f"{own:.3f}" if form == "exact" else f"{own:.3f} ({own / exact - 1:+.1%})"


def inner_steps(rounds: list[int]) -> str:
    """Of the first round, and of those after it."""
    if not rounds:
        return "4"
    least, most = min(rounds), max(rounds)
    return f"4, then {least}" + (f" to {most}" if most > least else "")


if __name__ == "__main__":
    sys.exit(main())
