"""python -m tests.sim run 1234          play one story, and show all that happened; instead of run also pool and queue
python -m tests.sim run 0 100000      play many; the first that breaks an invariant is made short and shown
python -m tests.sim run mutant NAME   hunt for a seed that finds this fault of tests/sim/run_mutants.toml
"""

from __future__ import annotations

import sys
import time
from collections import Counter

from tests.sim import mutants
from tests.sim.run_story import STRANGERS
from tests.sim.search import KINDS, outcomes, report
from tests.sim.story import Story, play


def one(kind: type[Story], seed: int) -> int:
    outcome = play(kind.of(seed))
    print("\n".join(outcome.journal))
    print(f"\n{words(outcome.counted)} in {outcome.played_s:.0f} s of played time")
    print(report(kind.of(seed)) if outcome.broken else "all invariants hold")
    return 1 if outcome.broken else 0


def many(kind: type[Story], first: int, last: int) -> int:
    began, counted = time.monotonic(), Counter[str]()
    for seed, outcome in outcomes(kind, range(first, last)):
        if outcome.broken:
            print(f"seed {seed}: {report(kind.of(seed))}")
            return 1
        counted.update(outcome.counted)  # type: ignore[arg-type]  # seconds are no whole numbers
    print(f"{last - first} stories, all invariants hold ({time.monotonic() - began:.0f} s); together {words(counted)}")
    return 0


def words(counted: dict[str, float]) -> str:
    return ", ".join(f"{number:.0f} {what}" for what, number in counted.items())


def hunt(kind: type[Story], name: str) -> int:
    with mutants.applied(mutants.named(kind.KIND, name)) as breaks:
        seed = breaks(range(1000))
        if seed is None and kind is KINDS["run"]:
            seed = breaks(range(STRANGERS, STRANGERS + 1000))
    print(f"{name}: {'not found within 1000 seeds' if seed is None else f'seed {seed}'}")
    return 1 if seed is None else 0


def main(words: list[str]) -> int:
    match words:
        case [kind, seed] if kind in KINDS and seed.isdecimal():
            return one(KINDS[kind], int(seed))
        case [kind, first, last] if kind in KINDS and first.isdecimal() and last.isdecimal():
            return many(KINDS[kind], int(first), int(last))
        case [kind, "mutant", name] if kind in KINDS:
            return hunt(KINDS[kind], name)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
