"""`make bench-local`: exact sync against `sync: local` on three lab hosts, at three link speeds.

    python -m tests.bench.slow_links            1000, 100 and 20 Mbit/s, each way once, then docs/BENCHMARKS.md
    python -m tests.bench.slow_links 20         one of them

All weights of `tiny` are trained (1.2 M, 4.9 MB an exchange), the same steps and rows with both: held-out loss after
equal tokens, and the time that the steps took.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from lab import network
from lab.lab import Lab
from tests.bench import page
from tests.support import torchrun

ROWS, MICRO_BATCH, STEPS = 24, 4, 64
RATES = (1000, 100, 20)


def one(lab: Lab, mbit: int, sync: str) -> dict[str, Any]:
    for host in lab.hosts:
        network.set_rate(host.cable, mbit)
    name = f"l{mbit}{sync}{len(page.kept('slow_links').get(f'{mbit} {sync}', []))}"
    run = torchrun.train(
        name, lab.hosts, rows_per_step=ROWS, max_steps=STEPS, micro_batch=MICRO_BATCH, sync=sync, wire="fp32",
        method="full", learning_rate=2e-3, eval_rows=96, save_every=STEPS, shares="14,7,3",
    )  # fmt: skip
    try:
        run.wait_for_step(2)
        torchrun.quotas(lab.hosts, on=True)
        run.end(timeout_s=280)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rates", nargs="*", type=int, default=list(RATES), help="Mbit/s")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--anew", action="store_true", help="forget what was measured before")
    args = parser.parse_args()
    if args.anew:
        page.forget("slow_links")
    with torchrun.lab_for_training("benchlocal") as lab:
        for mbit in args.rates:
            for _ in range(args.repeats):
                for sync in ("flat", "local"):
                    page.keep("slow_links", f"{mbit} {sync}", one(lab, mbit, sync))
    page.put("slow_links", table(page.kept("slow_links")))
    return 0


def table(found: dict[str, list[dict[str, Any]]]) -> list[str]:
    lines = [
        "| link, sync | held-out loss | s a step | of it adding up | steps of a round |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case, runs in found.items():
        mbit, sync = case.split()
        figures = [
            " ".join(f"{run['loss']:.3f}" for run in runs),
            " ".join(f"{run['step_s']:.2f}" for run in runs),
            " ".join(f"{run['sync']:.0%}" for run in runs),
            " ".join(f"4 → {' → '.join(map(str, run['rounds']))}" for run in runs) if sync == "local" else "",
        ]
        lines.append(f"| {mbit} Mbit/s, {'exact' if sync == 'flat' else sync} | {' | '.join(figures)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
