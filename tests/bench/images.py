"""Pictures on unequal hosts of the lab: balanced, even, and a plain script with DistributedDataParallel.

make bench PARTS=images                 three repeats of each part
python -m tests.bench.images plain --repeats 1
"""

from __future__ import annotations

import shutil
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lab.lab import Lab
from lab.layer import ENV
from tests.bench.page import Figures, bench, row
from tests.bench.speed import COUNTER, measured, rows_per_second
from tests.support import photos, torchrun
from tests.support.torchrun import AT, Training, environment, on_disk

NAME = "images"
PICTURES = 96
MODEL, WIDTH, EDGE = "resnet18", 16, 32
SETTINGS: dict[str, Any] = {
    "recipe": "images",
    "dataset": f"{AT}/pictures",
    "model": MODEL,
    "width": WIDTH,
    "image_size": EDGE,
}
SETTINGS |= {"micro_batch": PICTURES}
"""A share at once, as the script has it."""


@contextmanager
def lab() -> Iterator[Lab]:
    with torchrun.lab_for_training("benchimages") as made:
        bring_pictures(made)
        yield made


def bring_pictures(lab: Lab) -> None:
    first, *others = lab.hosts
    photos.write(on_disk(first) / "photos", count=400, edge=EDGE)
    prepare = f"-m train prepare --recipe images --image-size {EDGE} --dataset {AT}/photos --out {AT}/pictures"
    first.run(*environment(first), f"{ENV}/bin/python", *prepare.split())
    for host in others:
        shutil.copytree(on_disk(first) / "pictures", on_disk(host) / "pictures")


def ours(lab: Lab) -> Figures:
    alone = [rows_per_second([host], rows=PICTURES // 3, skip=1, count=3, **SETTINGS) for host in lab.hosts]
    even = rows_per_second(lab.hosts, rows=PICTURES, skip=1, count=4, balance="even", **SETTINGS)
    auto = rows_per_second(lab.hosts, rows=PICTURES, skip=18, count=15, **SETTINGS)
    return {"alone": alone, "even": even, "auto": auto}


def plain(lab: Lab) -> Figures:
    name = f"ddp{next(COUNTER)}"
    out = AT / "runs/logs/runs" / name / "events.jsonl"
    words = ["-m", "tests.bench.plain_ddp", AT / "pictures", out, MODEL, WIDTH, PICTURES, 400]
    run = Training(name, lab.hosts, list(map(str, words)))
    return {"plain": measured(run, rows=PICTURES, skip=1, count=4)}


PARTS: dict[str, Callable[[Lab], Figures]] = {"ours": ours, "plain": plain}


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = ["| pictures a second | measured | aim |", "|---|---|---|"]
    if rates := found.get("ours", []):
        alone = " + ".join(f"{statistics.median(rate['alone'][i] for rate in rates):.0f}" for i in range(3))
        lines += [
            f"| each machine alone | {alone} | |",
            row("together, balanced", [rate["auto"] for rate in rates], "{:.0f}"),
            row("… of the sum of the three alone", [r["auto"] / sum(r["alone"]) for r in rates], "{:.0%}", "≥ 92 %"),
            row("together, even split", [rate["even"] for rate in rates], "{:.0f}"),
        ]
    if peers := [part["plain"] for part in found.get("plain", [])]:
        lines.append(row("together, the plain script (even split)", peers, "{:.0f}"))
        if rates:
            auto = statistics.median(rate["auto"] for rate in rates)
            lines.append(row("balanced over the plain script", [auto / peer for peer in peers], "{:.2f}×"))
    return lines


def main() -> int:
    return bench(__doc__, NAME, lab(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
