"""What nodes tell one another of the answers of a step: some numbers of each, then the answers themselves. After it all
have the same, and any of them may train on any answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from train.engine.consistency import Disagreement
from train.errors import BadInput, PeerFailed
from train.parallel.process_group import World
from train.recipes.rollout import Facts, Row


@dataclass(frozen=True)
class Known:
    """What all nodes know of all answers, in their order."""

    facts: list[Facts]
    makers: list[int]
    """The rank that made each."""
    seconds: list[float]
    """What each rank took for its own."""


def exchange_facts(
    world: World, own: dict[int, Facts], *, count: int, size: int, seconds: float = 0.0, problem: BadInput | None
) -> Known:
    """`size`: numbers of an answer; `problem`: what ends the run here, on all nodes with the words of one."""
    table = {number: facts.numbers() for number, facts in own.items()}
    lines = [[float(number in table), *table.get(number, [0.0] * size)] for number in range(count)]
    parts = world.numbers([float(problem is not None), seconds, *(value for line in lines for value in line)])
    if any(part[0] for part in parts):
        raise_for_all(world, problem)
    facts, makers = [], []
    for first in range(2, 2 + count * (1 + size), 1 + size):
        made_by = [rank for rank, part in enumerate(parts) if part[first]]
        if len(made_by) != 1:
            number = (first - 2) // (1 + size)
            raise Disagreement(f"answer {number} was made by {len(made_by)} processes, and each is made by one")
        makers += made_by
        facts.append(Facts.of(parts[made_by[0]][first + 1 : first + 1 + size]))
    return Known(facts, makers, [part[1] for part in parts])


def exchange_rows(
    world: World, own: dict[int, Row], known: Known, prompts: Sequence[list[int]], *, old: bool, base: bool
) -> list[Row]:
    """All answers, with the log-probabilities that their training needs."""
    columns = 1 + old + base
    by_maker = [[at for at, maker in enumerate(known.makers) if maker == rank] for rank in range(world.size)]
    sizes = [columns * sum(known.facts[number].tokens for number in numbers) for numbers in by_maker]
    mine = [value for number in by_maker[world.rank] for value in own[number].numbers(old=old, base=base)]
    parts = world.numbers([*mine, *[0.0] * (max(sizes) - len(mine))])
    found: dict[int, Row] = {}
    for numbers, part in zip(by_maker, parts, strict=True):
        at = 0
        for number in numbers:
            tokens = known.facts[number].tokens
            found[number] = Row.of(prompts[number], part[at : at + columns * tokens], tokens, old=old, base=base)
            at += columns * tokens
    return [found[number] for number in range(len(known.facts))]


def raise_for_all(world: World, problem: BadInput | None) -> NoReturn:
    """Who has the problem says it in its own words; for the others it is a peer's."""
    told = world.gather([world.node, str(problem).splitlines()[0]] if problem else None)
    if problem:
        raise problem
    node, what = next(one for one in told if one)
    raise PeerFailed(f"{node}: {what}")
