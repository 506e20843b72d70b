"""Plays many stories on all processors, and makes one that breaks an invariant as short as it gets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from tests.sim.pool_story import PoolStory
from tests.sim.queue_story import QueueStory
from tests.sim.run_story import RunStory
from tests.sim.story import Outcome, Story, play

KINDS: dict[str, type[Story]] = {kind.KIND: kind for kind in (RunStory, PoolStory, QueueStory)}


def told_of(kind: type[Story], seed: int) -> tuple[int, Outcome]:
    return seed, replace(play(kind.of(seed)), journal=[])


def outcomes(kind: type[Story], seeds: Iterable[int]) -> Iterator[tuple[int, Outcome]]:
    """In the seeds' order."""
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        yield from pool.imap(partial(told_of, kind), seeds, chunksize=4)


def first_broken(kind: type[Story], seeds: Iterable[int]) -> int | None:
    return next((seed for seed, outcome in outcomes(kind, seeds) if outcome.broken), None)


def shrunk(story: Story) -> Story:
    """Still broken, whatever by: without each fault that it does not need, with shorter ones, with less of the rest."""
    kept = story
    for fault in story.faults:
        kept = if_broken(replace(kept, faults=tuple(one for one in kept.faults if one != fault)), kept)
    for i, fault in enumerate(kept.faults):
        shorter = replace(fault, lasts_s=round(fault.lasts_s / 2, 2))
        kept = if_broken(replace(kept, faults=(*kept.faults[:i], shorter, *kept.faults[i + 1 :])), kept)
    for facts in story.EASIER:
        kept = if_broken(replace(kept, **facts), kept)
    return kept


def if_broken(story: Story, before: Story) -> Story:
    return story if play(story).broken else before


def report(story: Story) -> str:
    """What broke, and how to see it again."""
    small = shrunk(story)
    faults = "\n".join(f"  {fault}" for fault in small.faults)
    return f"""{play(small).broken}

{small.words()}
{faults}

again:          python -m tests.sim {story.KIND} {story.seed}
as a test, a line of tests/sim/{story.KIND}_kept.jsonl:
{small.to_json()}"""
