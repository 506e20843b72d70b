"""One, two, three and five machines: what each more of them brings, measured in the lab and predicted to sixteen.

    make bench PARTS=scaling
    python -m tests.bench.scaling equal unequal --repeats 1

`equal`: as many rows per machine whatever their number, as tables of this kind are made. `unequal`: the profile's five
different machines and a step of fixed size, as people have them.
"""

from __future__ import annotations

import statistics
import sys

from lab.lab import Lab
from tests.bench.page import Figures, bench
from tests.bench.speed import rows_per_second
from tests.support import torchrun
from train.plan.speed.step_time import Machine, together

NAME = "scaling"
COUNTS = (1, 2, 3, 5)
PREDICTED = (8, 16)
EQUAL_PERCENT = 18
ROWS_EACH = 8
ROWS = 24
LINK_MBIT = 1000
ADAPTER_BYTES = 4 * 152_576
"""Of `tiny` with LoRA r 16 on all layers, fp32."""
WATTS, PRICE_KWH = 350, 0.30
"""A desktop while it trains, and a kilowatt-hour: no power was measured here."""


def equal(lab: Lab) -> Figures:
    percent = dict.fromkeys((host.name for host in lab.hosts), float(EQUAL_PERCENT))
    return {
        str(count): rows_per_second(
            lab.hosts[:count], rows=ROWS_EACH * count, skip=8, count=8, percent=percent, balance="auto"
        )
        for count in COUNTS
    }


def unequal(lab: Lab) -> Figures:
    alone = {host.name: rows_per_second([host], rows=8, skip=1, count=4) for host in lab.hosts}
    found = {str(count): rows_per_second(lab.hosts[:count], rows=ROWS, skip=16, count=8) for count in COUNTS[1:]}
    return {"alone": alone, **found}


def predicted(speeds: list[float], rows: int) -> float:
    machines = [Machine(f"n{number}", speed, LINK_MBIT) for number, speed in enumerate(speeds)]
    return together(machines, rows, ADAPTER_BYTES).rows_per_s


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines: list[str] = []
    if runs := found.get("equal", []):
        one = statistics.median(run["1"] for run in runs)
        lines += [
            f"| equal machines | rows per step | rows/s | speed-up | predicted | {WATTS} W each cost | 1 000 rows |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        for count in (*COUNTS, *PREDICTED):
            rates = [run[str(count)] for run in runs if str(count) in run]
            model = predicted([one] * count, ROWS_EACH * count)
            rate = statistics.median(rates) if rates else model
            spread = f"{rate:.1f} ({min(rates):.1f}–{max(rates):.1f})" if rates else "–"
            speed_up = f"{rate / one:.2f}×" if rates else "–"
            per_hour = count * WATTS / 1000 * PRICE_KWH
            cost = per_hour / (rate * 3600) * 1000
            lines.append(
                f"| {count} | {ROWS_EACH * count} | {spread} | {speed_up} | {model / one:.2f}× "
                f"| {per_hour:.2f} an hour | {cost:.4f} |"
            )
        lines.append("")
    if runs := found.get("unequal", []):
        names = list(runs[0]["alone"])
        alone = [statistics.median(run["alone"][name] for run in runs) for name in names]
        lines += [
            f"| unequal machines, {ROWS} rows a step | rows/s alone | together | of the sum | over the first |",
            "| --- | --- | --- | --- | --- |",
        ]
        for count in COUNTS[1:]:
            rate = statistics.median(run[str(count)] for run in runs)
            total = sum(alone[:count])
            added = " + ".join(f"{speed:.1f}" for speed in alone[:count])
            lines.append(f"| {count} | {added} | {rate:.1f} | {rate / total:.0%} | {rate / alone[0]:.2f}× |")
    return lines


PARTS = {"equal": equal, "unequal": unequal}


def main() -> int:
    return bench(__doc__, NAME, torchrun.lab_for_training("benchscaling", "five"), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
