"""Plays many stories on all processors, and makes one that breaks an invariant as short as it gets."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from multiprocessing import get_context
from typing import TypeVar

from tests.sim.story import Story, play

Item = TypeVar("Item")
Found = TypeVar("Found")


def on_all_processors(call: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[Found]:
    """What it returns for each of them, in their order."""
    with get_context("fork").Pool(len(os.sched_getaffinity(0))) as pool:
        yield from pool.imap(call, items, chunksize=8)


def broken_by(seed: int) -> tuple[int, str]:
    return seed, play(Story.of(seed)).broken


def first_broken(seeds: Iterable[int]) -> tuple[int, str] | None:
    return next((found for found in on_all_processors(broken_by, seeds) if found[1]), None)


def shrunk(story: Story) -> Story:
    """Still broken, whatever by: without each fault that it does not need, and with shorter ones."""
    kept = story
    for fault in story.faults:
        fewer = replace(kept, faults=tuple(one for one in kept.faults if one != fault))
        kept = fewer if play(fewer).broken else kept
    for i, fault in enumerate(kept.faults):
        shorter = replace(fault, lasts_s=round(fault.lasts_s / 2, 2))
        faults = (*kept.faults[:i], shorter, *kept.faults[i + 1 :])
        kept = replace(kept, faults=faults) if play(replace(kept, faults=faults)).broken else kept
    for easier in ({"ending": "whole", "out": ()}, {"layers": 0}, {"ends": False}):
        kept = replace(kept, **easier) if play(replace(kept, **easier)).broken else kept
    return kept


def report(story: Story) -> str:
    """What broke, and how to see it again."""
    small = shrunk(story)
    faults = "\n".join(f"  {fault}" for fault in small.faults)
    out = f"; in the end {small.ending}: {', '.join(f'n{i}' for i in small.out)}" if small.ending != "whole" else ""
    return f"""{play(small).broken}

{small.size} machines{out}{"; the run ends" if small.ends else ""}
{faults}

again:          python -m tests.sim {story.seed}
as a test, a line of tests/sim/kept.jsonl:
{small.to_json()}"""
