"""What nodes tell one another of the answers of a step: some numbers of each, then the answers themselves. After it all
have the same, and any of them may train on any answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import NoReturn

from train.errors import BadInput, Disagreement, PeerFailed
from train.parallel.process_group import World
from train.recipes.grpo.rollout import Facts, Row
from train.runlog.event_types import Rollout


@dataclass(frozen=True)
class Effort:
    """What a rank has done for a rollout."""

    busy_s: float = 0.0
    """Seconds in which it made and scored its own."""
    idle_s: float = 0.0
    """Seconds in which it waited for work."""
    drawing_s: float = 0.0
    """The part of busy_s in which it drew tokens."""
    tokens: int = 0
    """Tokens that it drew, also of what it handed over."""
    handed_over: int = 0

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Effort:
        busy_s, idle_s, drawing_s, tokens, handed_over = numbers
        return cls(busy_s, idle_s, drawing_s, int(tokens), int(handed_over))

    @property
    def speed(self) -> float:
        """Tokens a second."""
        return self.tokens / max(self.drawing_s, 1e-9)


@dataclass(frozen=True)
class Known:
    """What all nodes know of all answers, in their order."""

    facts: list[Facts]
    makers: list[int]
    """The rank that ended each."""
    efforts: list[Effort]

    def by_name(self, names: Sequence[str]) -> Rollout:
        """What the step event says of who made the answers."""
        ends_s = max(one.busy_s + one.idle_s for one in self.efforts)
        each = list(zip(names, self.efforts, strict=True))
        return {
            "generate_s": {name: round(one.busy_s, 5) for name, one in each},
            "generate_wait_s": {name: round(ends_s - one.busy_s, 5) for name, one in each},
            "made": {name: self.makers.count(rank) for rank, name in enumerate(names)},
            "taken_over": sum(one.handed_over for one in self.efforts),
        }


def exchange_facts(
    world: World, own: dict[int, Facts], *, count: int, size: int, effort: Effort, problem: BadInput | None
) -> Known:
    """`size`: numbers of an answer; `problem`: what ends the run here, on all nodes with the words of one."""
    table = {number: facts.numbers() for number, facts in own.items()}
    lines = [[float(number in table), *table.get(number, [0.0] * size)] for number in range(count)]
    head = [float(problem is not None), *map(float, astuple(effort))]
    parts = world.numbers([*head, *(value for line in lines for value in line)])
    if any(part[0] for part in parts):
        raise_for_all(world, problem)
    facts, makers = [], []
    for number in range(count):
        first = len(head) + number * (1 + size)
        made_by = [rank for rank, part in enumerate(parts) if part[first]]
        if len(made_by) != 1:
            raise Disagreement(f"answer {number} was made by {len(made_by)} processes, and each is made by one")
        makers += made_by
        facts.append(Facts.of(parts[made_by[0]][first + 1 : first + 1 + size]))
    efforts = [Effort.of(part[1 : len(head)]) for part in parts]
    return Known(facts, makers, efforts)


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
    """Ends the run on all nodes: the node with the problem says it in its own words, for the others it is a peer's."""
    told = world.gather([world.node, str(problem).splitlines()[0]] if problem else None)
    if problem:
        raise problem
    node, what = next(one for one in told if one)
    raise PeerFailed(f"{node}: {what}")
