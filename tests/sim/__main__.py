"""python -m tests.sim 1234          play one story, and show all that happened
python -m tests.sim 0 100000      play many; the first that breaks an invariant is made short and shown
python -m tests.sim mutant NAME   hunt for a seed that finds this fault of tests/sim/mutants.toml
"""

from __future__ import annotations

import sys
import time

from tests.sim import mutants
from tests.sim.search import broken_by, on_all_processors, report
from tests.sim.story import STRANGERS, Story, play


def one(seed: int) -> int:
    outcome = play(Story.of(seed))
    print("\n".join(outcome.journal))
    print(
        f"\n{outcome.steps} steps in {outcome.played_s:.0f} s of played time; {outcome.broken or 'all invariants hold'}"
    )
    if outcome.broken:
        print("\n" + report(Story.of(seed)))
    return 1 if outcome.broken else 0


def many(first: int, last: int) -> int:
    began = time.monotonic()
    for seed, broken in on_all_processors(broken_by, range(first, last)):
        if broken:
            print(f"seed {seed}: {report(Story.of(seed))}")
            return 1
    print(f"{last - first} stories, all invariants hold ({time.monotonic() - began:.0f} s)")
    return 0


def hunt(name: str) -> int:
    with mutants.applied(mutants.named(name)) as breaks:
        seed = breaks(range(1000))
        seed = breaks(range(STRANGERS, STRANGERS + 1000)) if seed is None else seed
    print(f"{name}: {'seed ' + str(seed) if seed is not None else 'not found within 1000 seeds, nor with a stranger'}")
    return 0 if seed is not None else 1


def main(words: list[str]) -> int:
    match words:
        case [seed] if seed.isdecimal():
            return one(int(seed))
        case [first, last] if first.isdecimal() and last.isdecimal():
            return many(int(first), int(last))
        case ["mutant", name]:
            return hunt(name)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
