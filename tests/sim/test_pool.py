"""A run in pieces in played time: no piece is lost and none has two results, whatever happens to its machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import mutants
from tests.sim.pool_story import MUTANTS, PoolStory, first_broken, play, report

KEPT = [PoolStory.from_json(line) for line in Path(__file__).with_name("pool_kept.jsonl").read_text().splitlines()]
MANY = 60


def holds(seeds: range) -> None:
    if found := first_broken(seeds):
        raise AssertionError(f"seed {found[0]}: {report(PoolStory.of(found[0]))}")


def test_stories() -> None:
    holds(range(MANY))


@pytest.mark.long
@pytest.mark.parametrize("first", range(0, 10_000, 1_000))
def test_ten_thousand_stories(first: int) -> None:
    holds(range(first, first + 1_000))


@pytest.mark.parametrize("story", KEPT, ids=lambda story: f"{story.seed}")
def test_what_was_once_broken(story: PoolStory) -> None:
    assert play(story).broken == ""


def test_a_story_is_the_same_each_time_and_repeats_little() -> None:
    one, again = play(PoolStory.of(11)), play(PoolStory.of(11))
    assert one.journal == again.journal
    assert one.pieces <= one.pieces + one.repeated <= one.executions


@pytest.mark.parametrize("mutant", mutants.known(MUTANTS), ids=lambda mutant: mutant.name)
def test_a_fault_of_the_product_is_found(mutant: mutants.Mutant) -> None:
    with mutants.applied(mutant, "tests.sim.pool_story") as breaks:
        seeds = range(mutant.seed, mutant.seed + 1)
        assert breaks(seeds) == mutant.seed, "no longer: python -m tests.sim.pool_story mutant NAME, and note the seed"
