"""How long the lab takes, from nothing and from its cache.

make bench PARTS=lab
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Callable

from lab import base
from lab import lab as labs
from lab.place import Place
from lab.shell import run
from tests.bench.page import Figures, Found, bench, spread
from tests.support.tables import table as table_of

NAME = "lab"


def from_nothing(_: Place, suite: str) -> Figures:
    system = base.locate(suite)
    scratch = system.root.parent.with_name(f"bench-{suite}")
    build_s = _seconds(lambda: base.build(base.Base(suite, scratch / "root", scratch / "offered")))
    size_mb = int(run("du", "-sm", scratch).split()[0])
    run("rm", "-rf", scratch)
    return {"build_s": build_s, "size_mb": size_mb}


def one_life(place: Place, suite: str) -> dict[str, float]:
    labs.up(place, "trio", suite)  # fills what is cached
    labs.down(place)
    up_s = _seconds(lambda: labs.up(place, "trio", suite))
    lab = labs.current(place)
    return {
        "three hosts, up from cache (≤ 5 s)": up_s,
        "reset of one host (≤ 5 s)": _seconds(lambda: labs.reset(lab, ["gpu-worker-1"])),
        "reset of all three": _seconds(lambda: labs.reset(lab, [])),
        "snapshot of all three": _seconds(lambda: labs.snapshot(lab, "bench")),
        "restore of all three": _seconds(lambda: labs.restore(lab, "bench")),
        "down": _seconds(lambda: labs.down(place)),
    }


def table(found: Found) -> list[str]:
    suites = [suite for suite in base.DEBIAN_SUITES if suite in found]
    built = [found[f"{suite}-built"][-1] for suite in suites]
    rows = [("base, built from nothing", *(f"{one['build_s']:.0f} s, {one['size_mb']} MB" for one in built))]
    for what in found[suites[0]][0]:
        rows.append((what, *(spread([life[what] for life in found[suite]], "{:.1f} s") for suite in suites)))
    return table_of(("", *suites), rows)


def _seconds(act: Callable[[], object]) -> float:
    since = time.monotonic()
    act()
    return time.monotonic() - since


PARTS: dict[str, Callable[[Place], Figures]] = {
    f"{suite}{what}": functools.partial(measure, suite=suite)
    for suite in base.DEBIAN_SUITES
    for what, measure in (("-built", from_nothing), ("", one_life))
}


def main() -> int:
    return bench(__doc__, NAME, contextlib.nullcontext(Place(name="benchlab")), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
