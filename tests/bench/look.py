"""How long a healthy cluster takes to say that it is one: check-versions, doctor, and a plan.

    make bench PARTS=look

Three hosts of the lab with simulated cards, bootstrapped whole.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator

from tests.bench.page import Figures, Found, bench, row
from tests.support.bootstrap import Person, person_with_trio
from tests.support.tables import table as table_of

NAME = "look"
AIMS = {"check-versions": "≤ 5 s", "doctor": "≤ 30 s"}


@contextlib.contextmanager
def healthy_trio() -> Iterator[Person]:
    with person_with_trio("benchlook", "train") as person:
        person.writes(
            motley_gpu_driver_manage=True,
            motley_python_env_manage=True,
            motley_python_env_sets=["node-cpu"],
            motley_proof_collective=False,  # doctor has one of its own
        )
        person.bootstraps()
        yield person


def looks(person: Person) -> Figures:
    found = {}
    for verb, *words in (["check-versions"], ["doctor", "--quick"], ["doctor"]):
        since = time.monotonic()
        said = person.types(verb, *words)
        found[" ".join([verb, *words])] = time.monotonic() - since
        if said.rc:
            raise SystemExit(f"{verb} of a healthy cluster:\n{said.out}")
    since = time.monotonic()
    plan = person.plans(model="tiny", max_steps=20, rows_per_step=12, max_seq_length=64)
    found["plan"] = time.monotonic() - since
    if plan.rc:
        raise SystemExit(plan.out)
    return found


def table(found: Found) -> list[str]:
    asked = found["asked"]
    rows = [row(name, [it[name] for it in asked], "{:.1f}", AIMS.get(name, "")) for name in asked[0]]
    return table_of(("asked of three healthy machines", "seconds", "aim"), rows)


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, healthy_trio(), {"asked": looks}, table))
