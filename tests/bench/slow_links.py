"""Exact sync against `sync: local` on three lab hosts over slow links: how near each comes to the sum of the
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

from lab.lab import Lab
from tests.bench.page import Figures, Found, bench, spread
from tests.support import torchrun
from tests.support.tables import table as table_of

ROWS, MICRO_BATCH, STEPS = 24, 4, 48
MBIT = 20
SPEEDS, ROW_S, ROW_LENGTH = (4, 2, 1), 0.6, 256
SUM = sum(SPEEDS) / ROW_S
"""Rows per second of all machines, each alone."""
SETTLED = 8
"""Steps until shares and rounds are found."""
NAME = "slow_links"
COUNTER = counting()
FORMS = {"exact": "exact sync", "1": "1 inner step"}
"""Of which local_loss.py measures an adapter's held-out loss."""


def one(lab: Lab, sync: str) -> Figures:
    torchrun.links(lab.hosts, MBIT)
    named = ",".join(f"{host.name}={speed}" for host, speed in zip(lab.hosts, SPEEDS, strict=True))
    run = torchrun.train(
        f"l{sync}{next(COUNTER)}", lab.hosts, rows_per_step=ROWS, max_steps=STEPS, micro_batch=MICRO_BATCH,
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


PARTS = {f"{MBIT}-{sync}": functools.partial(one, sync=sync) for sync in ("flat", "local")}


def table(found: Found) -> list[str]:
    rows = []
    for part in PARTS:
        runs, local = found[part], part.endswith("local")
        steps = "; ".join(dict.fromkeys(inner_steps(run["rounds"]) for run in runs)) if local else ""
        figures = (spread([run[key] for run in runs], form) for key, form in COLUMNS.items())
        rows.append((f"{MBIT} Mbit/s, {'local' if local else 'exact'}", *figures, steps))
    heads = ("link, sync", "of the sum of the machines' speeds", "s a step", "of it all-reduce", "inner steps")
    losses = {form: statistics.median(run["loss"] for run in found[f"adapter-{form}"]) for form in FORMS}
    off = losses["1"] / losses["exact"] - 1
    cells = {"exact": f"{losses['exact']:.3f}", "1": f"{losses['1']:.3f} ({off:+.1%})"}
    loss = table_of(("held-out loss after as many rows", "adapter"), ((FORMS[form], cells[form]) for form in FORMS))
    return [*table_of(heads, rows), "", *loss]


COLUMNS = {"of the sum": "{:.0%}", "step_s": "{:.2f}", "sync": "{:.0%}"}


def inner_steps(rounds: list[int]) -> str:
    """Of the first round, and of those after it."""
    if not rounds:
        return "4"
    least, most = min(rounds), max(rounds)
    return f"4, then {least}" + (f" to {most}" if most > least else "")


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, torchrun.lab_for_training("benchlocal"), PARTS, table))
