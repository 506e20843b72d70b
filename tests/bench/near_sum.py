"""How near machines come to the sum of their speeds where each has a whole computer, in turns with each alone.

    make bench PARTS=near_sum
    python -m tests.bench.near_sum 24 --repeats 1

turns.py gives hosts a part of a core, and a slow host then has a slow processor for all that is beside computing too.
Here the speeds are pretended, as of cards (pretended.py); links, exchange, optimizer and event log are real.
"""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

from lab.lab import Lab
from tests.bench.balance import OF_PICTURES, PICTURES, with_pictures
from tests.bench.page import Figures, Found, bench, spread
from tests.bench.turns import figures, in_turns, reached_and_allowed, shares, where_seconds_go
from tests.support.tables import table as table_of

NAME = "near_sum"
TURNS = 5
ROW_LENGTH = 256
SETTLE = 25
"""Steps until the shares stay."""
TITLES = {
    "24": "24 rows",
    "8": "8 rows",
    "equal": "24 rows, two equal",
    "five": "24 rows, five unequal",
    "pictures": f"{PICTURES} pictures",
}
AIMS = {"24": "≥ 95 %", "8": "≥ 88 %", "equal": "≥ 98 %", "five": "≥ 93 %", "pictures": "≥ 92 %"}


def measure(lab: Lab, rows: int, *, speeds: tuple[int, ...], row_s: float, count: int = 4, **settings: Any) -> Figures:
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
    "pictures": partial(measure, rows=PICTURES, speeds=(4, 2, 1), row_s=0.15, **OF_PICTURES),
}


def table(found: Found) -> list[str]:
    rows = []
    for part, title in TITLES.items():
        speeds = ":".join(map(str, found[part][-1]["speeds"]))
        reached, allowed = reached_and_allowed(found[part])
        ratio = spread(reached, "{:.1%}", "turns")
        rows.append((title, speeds, shares(found[part]), ratio, f"{allowed:.1%}", AIMS[part]))
    heads = ("a step", "speeds", "shares", "of the sum of each alone", "whole rows alone would allow", "aim")
    return [*table_of(heads, rows), "", *where_seconds_go(found, TITLES)]


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, with_pictures("benchnear", "five"), PARTS, table))
