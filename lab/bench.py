"""How long the lab takes, from nothing and from its cache: the table of docs/BENCHMARKS.md."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from lab import base
from lab import lab as labs
from lab.place import Place
from lab.shell import run

REPEATS = 5


def table(place: Place, suites: list[str]) -> list[tuple[str, ...]]:
    """Rows: what, then for each suite the median and range over repeats, in seconds."""
    columns = [_measure(place, suite) for suite in suites]
    rows = [("", *suites)]
    rows += [(what, *(column[what] for column in columns)) for what in columns[0]]
    return rows


def _measure(place: Place, suite: str) -> dict[str, str]:
    system = base.locate(suite)
    scratch = system.root.parent.with_name(f"bench-{suite}")
    build_s = _seconds(lambda: base.build(base.Base(suite, scratch / "root", scratch / "offered")))
    size_mb = int(run("du", "-sm", scratch).split()[0])
    run("rm", "-rf", scratch)

    times: dict[str, list[float]] = {}
    for _ in range(REPEATS):
        for what, took_s in _one_life(place, suite).items():
            times.setdefault(what, []).append(took_s)
    shown = {"base, built from nothing": f"{build_s:.0f} s, {size_mb} MB"}
    shown |= {
        what: f"{statistics.median(each):.1f} s ({min(each):.1f}–{max(each):.1f})" for what, each in times.items()
    }
    return shown


def _one_life(place: Place, suite: str) -> dict[str, float]:
    up_s = _seconds(lambda: labs.up(place, "trio", suite))
    lab = labs.current(place)
    return {
        "three hosts, up from cache": up_s,
        "reset of one host": _seconds(lambda: labs.reset(lab, ["gpu-worker-1"])),
        "reset of all three": _seconds(lambda: labs.reset(lab, [])),
        "snapshot of all three": _seconds(lambda: labs.snapshot(lab, "bench")),
        "restore of all three": _seconds(lambda: labs.restore(lab, "bench")),
        "down": _seconds(lambda: labs.down(place)),
    }


def _seconds(act: Callable[[], object]) -> float:
    since = time.monotonic()
    act()
    return time.monotonic() - since
