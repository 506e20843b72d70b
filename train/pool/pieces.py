"""A piece of work, who has it and what came of it; and the list that the processes of a group share. Pure. How large a
piece is the recipe says (recipes/generate/recipe.py).

The list is one JSON value in the group's store, changed by one process at a time:

    taken   number → the piece, who does it, and what they have told of it so far
    done    [number, rank]: in this group, in that order; what came of it lies beside the list

A group that begins brings together what its members have done and are doing. A piece has two results only where one
machine was cut off with it: then that of the later generation stays, as what all members of a group know is never done
again, and each generation has a majority.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Piece:
    number: int
    what: dict[str, Any]
    """What is to be done, as JSON."""


@dataclass(frozen=True)
class Taken:
    piece: Piece
    nodes: tuple[str, ...]
    """Who does it: near the end the next machine that is free may do it as well, and the first one counts."""
    notes: tuple[dict[str, Any], ...] = ()
    """What has been told of it so far."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(Piece(**facts["piece"]), tuple(facts["nodes"]), tuple(facts["notes"]))

    def facts(self) -> dict[str, Any]:
        return {"piece": asdict(self.piece), "nodes": list(self.nodes), "notes": list(self.notes)}


@dataclass(frozen=True)
class Done:
    piece: Piece
    node: str
    seconds: float
    result: dict[str, Any]
    """What came of it, as JSON."""
    generation: int = 0
    """In which it was brought."""
    data: str = ""
    """The hash of what it was done with."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(**{**facts, "piece": Piece(**facts["piece"])})

    def facts(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Known:
    """The same on all machines of a group, but for what has not come yet."""

    done: Mapping[int, Done]
    taken: Mapping[int, Taken]

    def has(self, number: int) -> bool:
        return number in self.done or number in self.taken


List = dict[str, Any]


def first_list(running: Sequence[Mapping[str, Any] | None], done: Mapping[int, Done]) -> List:
    """What a group begins with: what its members are doing, by rank."""
    taken: dict[str, Any] = {}
    for each in running:
        if each and each["piece"]["number"] not in done:
            number = str(each["piece"]["number"])
            nodes = [*taken.get(number, {"nodes": []})["nodes"], *each["nodes"]]
            taken[number] = {**each, "nodes": nodes}
    return {"taken": taken, "done": []}


def with_taken(now: List, piece: Piece, node: str) -> List:
    number = str(piece.number)
    before = now["taken"].get(number) or Taken(piece, ()).facts()
    return now | {"taken": {**now["taken"], number: {**before, "nodes": [*before["nodes"], node]}}}


def with_note(now: List, number: int, fact: Mapping[str, Any]) -> List:
    if (before := now["taken"].get(str(number))) is None:  # it is done
        return now
    return now | {"taken": {**now["taken"], str(number): {**before, "notes": [*before["notes"], fact]}}}


def with_done(now: List, number: int, rank: int) -> List:
    """The first one to bring it counts."""
    if any(number == known for known, _ in now["done"]):
        return now
    taken = {name: each for name, each in now["taken"].items() if name != str(number)}
    return {"taken": taken, "done": [*now["done"], [number, rank]]}


def newest(holders: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Number → the rank whose result stays; `holders`: of each rank what it has, number → generation."""
    best: dict[int, tuple[int, int]] = {}
    for rank, has in enumerate(holders):
        for number, generation in has.items():
            best[number] = max(best.get(number, (-1, 0)), (generation, -rank))
    return {number: -rank for number, (_, rank) in best.items()}


AGAIN = 1.1
"""How many times longer than here it must take where it is, to be worth doing twice."""


def worth_again(
    taken: Mapping[int, Taken], running_s: Mapping[int, float], mean_s: Mapping[str, float], own: str
) -> int:
    """The piece that this machine, which has nothing to do, would end before those who do it; -1: there is none.
    `mean_s`: of each machine, what a piece takes."""
    if own not in mean_s:
        return -1
    rests = {
        number: min(rest_s(running_s.get(number, 0.0), mean_s.get(node, 0.0)) for node in each.nodes)
        for number, each in taken.items()
        if own not in each.nodes
    }
    number = max(rests, key=lambda number: rests[number], default=-1)
    return number if number >= 0 and rests[number] > AGAIN * mean_s[own] else -1


def rest_s(running_s: float, usual_s: float) -> float:
    """What a piece still takes. One that has taken longer than usual may be stuck: as long again is expected of it."""
    return usual_s - running_s if usual_s > running_s else running_s
