"""A bootstrap of machines that are bootstrapped already: every phase looks, and changes nothing.

    make bench PARTS=bootstrap

Three hosts of the lab with simulated cards. `bare` is without drivers, environment and all-reduce, `whole` with them.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.page import Figures, Found, bench, cpu_seconds, row
from tests.support.bootstrap import Person, person_with_trio
from tests.support.tables import table as table_of

NAME = "bootstrap"
WHOLE: dict[str, Any] = {
    "motley_gpu_driver_manage": True,
    "motley_python_env_manage": True,
    "motley_python_env_sets": ["node-cpu"],
}
BARE: dict[str, Any] = {"motley_proof_collective": False}
TITLES = {"bare": "without drivers and environment", "whole": "with drivers, environment and all-reduce"}
AIMS = {"bare": "≤ 20 s", "whole": ""}


@dataclass
class Bootstrapped:
    person: Person
    fresh_s: float


@contextlib.contextmanager
def bootstrapped_trio() -> Iterator[Bootstrapped]:
    with person_with_trio("benchbootstrap") as person:
        person.writes(**WHOLE)
        since = time.monotonic()
        person.bootstraps()
        yield Bootstrapped(person, time.monotonic() - since)


def again(there: Bootstrapped, **wanted: Any) -> Figures:
    there.person.writes(**wanted)
    before, since = cpu_seconds(), time.monotonic()
    said = there.person.bootstraps()
    took, cpu = time.monotonic() - since, cpu_seconds() - before
    if any(said.changed().values()):
        raise SystemExit(f"it did more than look:\n{said.out}")
    phases = said.receipt["nodes"]["gpu-master"]["phases"]
    seconds = {name: phase["seconds"] for name, phase in phases.items()}
    return {"fresh": there.fresh_s, "again": took, "CPU": cpu, "phases": seconds}


def table(found: Found) -> list[str]:
    rows = []
    for part, each in measured(found):
        rows.append(row(f"again, {TITLES[part]}", [one["again"] for one in each], "{:.1f}", AIMS[part]))
        rows.append(row("… CPU-seconds of the controller", [one["CPU"] for one in each], "{:.1f}"))
    fresh = [*dict.fromkeys(one["fresh"] for one in found["whole"])]
    rows.append(row(f"fresh, {TITLES['whole']}", fresh, "{:.1f}"))
    lines = table_of(("a bootstrap of three machines", "seconds", "aim"), rows)
    for part, each in measured(found):
        lines += ["", f"Seconds by phase, {TITLES[part]}: {split(each)}."]
    return lines


def measured(found: Found) -> list[tuple[str, list[Figures]]]:
    return [(part, found[part]) for part in TITLES]


def split(each: list[Figures]) -> str:
    """The medians; what an earlier run did not have counts as nothing."""
    took = {name: median([one["phases"].get(name, 0.0) for one in each]) for name in each[0]["phases"]}
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in took.items())


PARTS = {"bare": lambda there: again(there, **BARE), "whole": lambda there: again(there, **WHOLE)}


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, bootstrapped_trio(), PARTS, table))
