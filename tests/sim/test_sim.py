"""Stories from seeds in played time, those that once broke something, and faults of the product that must be found."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.sim import mutants
from tests.sim.run_story import STRANGERS
from tests.sim.search import KINDS, outcomes, report
from tests.sim.story import Story, play

MANY = {"run": 170, "pool": 40, "queue": 40}
"""For a run enough to find each fault of run_mutants.toml that stories without a stranger find."""
MORE = [("run", max(first, MANY["run"]), first + 1_000) for first in range(0, 10_000, 1_000)]
MORE += [("pool", max(first, MANY["pool"]), first + 1_000) for first in range(0, 2_000, 1_000)]
"""Three quarters of an hour of one processor."""
KEPT = [
    kind.from_json(line)
    for kind in KINDS.values()
    if (file := Path(__file__).with_name(f"{kind.KIND}_kept.jsonl")).exists()
    for line in file.read_text().splitlines()
]


def holds(kind: str, seeds: range) -> Counter[str]:
    """What they counted."""
    counted = Counter[str]()
    for seed, outcome in outcomes(KINDS[kind], seeds):
        assert not outcome.broken, f"seed {seed}: {report(KINDS[kind].of(seed))}"
        counted.update(outcome.counted)
    return counted


@pytest.mark.parametrize("kind", KINDS)
def test_stories(kind: str) -> None:
    holds(kind, range(MANY[kind]))


def test_who_knows_everything_but_the_token_changes_nothing() -> None:
    assert holds("run", range(STRANGERS, STRANGERS + 40))["words of a stranger"] > 40 * 50


@pytest.mark.long
@pytest.mark.parametrize(("kind", "first", "last"), MORE)
def test_many_stories(kind: str, first: int, last: int) -> None:
    holds(kind, range(first, last))


@pytest.mark.long
def test_no_run_is_lost_or_doubled_in_a_thousand_faults() -> None:
    counted = holds("queue", range(MANY["queue"], 250))
    assert counted["faults"] + counted["changes"] > 1000


@pytest.mark.parametrize("story", KEPT, ids=lambda story: f"{story.KIND} {story.seed}")
def test_what_was_once_broken(story: Story) -> None:
    assert play(story).broken == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_story_is_the_same_each_time(kind: str) -> None:
    one, again = play(KINDS[kind].of(11)), play(KINDS[kind].of(11))
    assert one == again and one.journal


@pytest.mark.parametrize("mutant", [one for kind in KINDS for one in mutants.known(kind)], ids=lambda one: one.name)
def test_a_fault_of_the_product_is_found(mutant: mutants.Mutant) -> None:
    with mutants.applied(mutant) as breaks:
        seeds = range(mutant.seed, mutant.seed + 1)
        assert breaks(seeds) == mutant.seed, f"no longer: python -m tests.sim {mutant.kind} mutant NAME; note the seed"
