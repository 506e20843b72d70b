"""How near machines come to the sum of their speeds where each has a whole computer, in turns with each alone.

    make bench PARTS=near_sum
    python -m tests.bench.near_sum 24 --repeats 1

turns.py gives hosts a part of a core, and a slow host then has a slow processor for all that is beside computing too.
Here the speeds are pretended, as of cards (pretended.py); links, exchange, optimizer and event log are real.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from lab.lab import Lab
from tests.bench import images
from tests.bench.page import Figures, bench, spread
from tests.bench.turns import figures, in_turns, where_seconds_go
from tests.support import torchrun

NAME = "near_sum"
TURNS = 5
TEXT: Mapping[str, Any] = {}
ROW_LENGTH = 256
SETTLE = 25
"""Steps until the shares stay."""
TITLES = {"equal": "24 rows, two equal", "five": "24 rows, five unequal", "pictures": f"{images.PICTURES} pictures"}
AIMS = {"24": "≥ 95 %", "8": "≥ 88 %", "equal": "≥ 98 %", "five": "≥ 93 %", "pictures": "≥ 92 %"}


def measure(
    lab: Lab, rows: int, *, speeds: tuple[int, ...], row_s: float, count: int = 4, settings: Mapping[str, Any] = TEXT
) -> Figures:
    """`row_s`: what a machine of speed 1 takes for a row. A step takes a second or two, so what the one real processor
    of all hosts does beside it stays small."""
    hosts = lab.hosts[: len(speeds)]
    named = ",".join(f"{host.name}={speed}" for host, speed in zip(hosts, speeds, strict=True))
    program = ("tests.bench.pretended", str(row_s), str(ROW_LENGTH), named)
    how: dict[str, Any] = {"settle": SETTLE, "count": count, "turns": TURNS, "limited": False}
    return figures(in_turns(hosts, rows, **how, program=program, **settings)) | {"speeds": speeds}


PARTS = {
    "24": partial(measure, rows=24, speeds=(4, 2, 1), row_s=0.6),
    "8": partial(measure, rows=8, speeds=(4, 2, 1), row_s=0.6, count=10),
    "equal": partial(measure, rows=24, speeds=(4, 4), row_s=0.6),
    "five": partial(measure, rows=24, speeds=(8, 4, 3, 3, 2), row_s=1.2),
    "pictures": partial(measure, rows=images.PICTURES, speeds=(4, 2, 1), row_s=0.15, settings=images.SETTINGS),
}


@contextmanager
def place() -> Iterator[Lab]:
    with torchrun.lab_for_training("benchnear", "five") as made:
        images.bring_pictures(made)
        yield made


def table(found: dict[str, list[Figures]]) -> list[str]:
    heads = ("a step", "speeds", "shares", "of the sum of each alone", "whole rows alone would allow", "aim")
    lines = [f"| {' | '.join(heads)} |", "| --- |" + " --- |" * (len(heads) - 1)]
    for part in PARTS:
        if not (runs := found.get(part)):
            continue
        shares = statistics.mode(":".join(map(str, own)) for run in runs for own in run["rows"])
        reached, allowed = ([ratio for run in runs for ratio in run[what]] for what in ("of the sum", "whole rows"))
        speeds = ":".join(map(str, runs[-1]["speeds"]))
        lines.append(
            f"| {titled(part)} | {speeds} | {shares} | {spread(reached, '{:.1%}', 'turns')} | "
            f"{statistics.median(allowed):.1%} | {AIMS[part]} |"
        )
    return [*lines, *where_seconds_go(found, PARTS, titled)]


def titled(part: str) -> str:
    return TITLES.get(part, f"{part} rows")


def main() -> int:
    return bench(__doc__, NAME, place(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
