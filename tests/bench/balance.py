"""What balancing gains on unequal hosts of the lab, beside an even split and beside a peer that knows no other: rows of
text beside transformers' Trainer, pictures beside the plain script of a tutorial.

make bench PARTS=balance                 three repeats of each part
python -m tests.bench.balance pictures --repeats 1
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab.lab import Lab
from lab.layer import ENV
from tests.bench.page import Figures, Found, bench, over
from tests.bench.speed import COUNTER, MICRO_BATCH, begun, window
from tests.support import photos, torchrun
from tests.support.tables import table as table_of
from tests.support.torchrun import AT, Training, environment, on_disk
from train.parallel.rebalance import QUIET

NAME = "balance"
PICTURES, EDGE = 96, 32
OUT = "OUT"
OF_PICTURES: dict[str, Any] = {
    "recipe": "images", "dataset": f"{AT}/pictures", "model": "resnet18", "width": 16, "image_size": EDGE,
    "micro_batch": PICTURES,  # a share at once, as the script has it
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    title: str
    rows: int
    """Of a step."""
    settings: Mapping[str, Any]
    peer: Sequence[object]
    """Its program; OUT is where its steps are read."""


CASES = {
    "text": Case("rows, HF Trainer + DDP", 24, {}, ("hf_trainer", "tiny", AT / "data", OUT, 24, 400, MICRO_BATCH)),
    "pictures": Case(
        "pictures, a plain DDP script",
        PICTURES,
        OF_PICTURES,
        ("plain_ddp", AT / "pictures", OUT, OF_PICTURES["model"], OF_PICTURES["width"], PICTURES, 400),
    ),
}


def measure(lab: Lab, case: Case) -> Figures:
    def rate(run: Training, skip: int, count: int) -> float:
        return window(run, rows=case.rows, skip=skip, count=count).rows_per_s

    name = f"peer{next(COUNTER)}"
    out = AT / "runs/logs/runs" / name / "events.jsonl"
    module, *words = (str(out if word is OUT else word) for word in case.peer)
    return {
        "even": rate(begun(lab.hosts, case.rows, balance="even", **case.settings), 1, 4),
        "auto": rate(begun(lab.hosts, case.rows, **case.settings), 2 * QUIET, 15),
        "peer": rate(Training(name, lab.hosts, ["-m", f"tests.bench.{module}", *words]), 1, 4),
    }


def bring_pictures(lab: Lab) -> None:
    first, *others = lab.hosts
    photos.write(on_disk(first) / "photos", count=400, edge=EDGE)
    prepare = f"-m train prepare --recipe images --image-size {EDGE} --dataset {AT}/photos --out {AT}/pictures"
    first.run(*environment(first), f"{ENV}/bin/python", *prepare.split())
    for host in others:
        shutil.copytree(on_disk(first) / "pictures", on_disk(host) / "pictures")


@contextmanager
def with_pictures(name: str, profile: str = "trio") -> Iterator[Lab]:
    with torchrun.lab_for_training(name, profile) as lab:
        bring_pictures(lab)
        yield lab


def table(found: Found) -> list[str]:
    """A line for each repeat, whose ratios are of its own figures."""
    even = ("even split", "balanced over it (rows: aim ≥ 2.1×)")
    heads = ("a second of", "together, balanced", *even, "the peer (even)", "balanced over it")
    rows = []
    for part, case in CASES.items():
        for number, run in enumerate(found[part], 1):
            alike, auto, peer = (f"{run[what]:.1f}" for what in ("even", "auto", "peer"))
            over_even, over_peer = (f"{over(run['auto'], run[what]):.2f}×" for what in ("even", "peer"))
            rows.append((f"{case.title}: {number}", auto, alike, over_even, peer, over_peer))
    return table_of(heads, rows)


PARTS = {part: partial(measure, case=case) for part, case in CASES.items()}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, with_pictures("benchbalance"), PARTS, table))
