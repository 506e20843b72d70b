"""Rows of one or several data sets: which are whose, how often they come, and which of them a step trains.

The rows of each stand behind one another in a split, so that a row's origin is its number. An epoch takes each row of a
data set as often as its weight says: twice, once, or every second one now and the others in the next epoch.

All rows stand in one endless stream, epoch after epoch, each epoch in an order of its own. Step k takes the stream's
positions [k·R, (k+1)·R), so no row is skipped at the end of an epoch and none comes twice within one. Which row stands
at a position follows from the position and the seed alone, never from who computes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.index import Index, PartIndex
from train.data.read_records import Reader, Tally
from train.plan.model.catalogue import Dataset


@dataclass(frozen=True, slots=True)
class RowsPart:
    """The rows of one data set, in a split."""

    name: str
    weight: float
    first: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.first

    @property
    def taken(self) -> int:
        """How many rows an epoch takes of it."""
        return max(1, round(self.weight * self.size)) if self.weight and self.size else 0


class Parts:
    """What index.json says of the data sets behind its rows; nothing of one alone."""

    def __init__(self, data: Dataset) -> None:
        self.data, self.rows, self.made = data, {"train": 0, "eval": 0}, list[PartIndex]()

    def add(self, rows: Mapping[str, int], reader: Reader) -> None:
        """The next one is written: so many rows each split has now."""
        part = self.data.each[len(self.made)]
        added = {split: count - self.rows[split] for split, count in rows.items()}
        if part.weight and not added["train"]:
            reader.require_some(held_out=added["eval"])
        tally = reader.tally
        self.made.append(
            PartIndex(name=part.data.name, weight=part.weight, rows=added, records=tally.records, bad=tally.bad)
        )
        self.rows = dict(rows)


def together(tallies: Sequence[Tally]) -> Tally:
    """What became of all records."""
    if len(tallies) == 1:
        return tallies[0]
    sums = {name: sum(getattr(tally, name) for tally in tallies) for name in ("records", "bad", "truncated", "emptied")}
    first_bad = [problem for tally in tallies for problem in tally.first_bad]
    return Tally(**sums, longest=max(tally.longest for tally in tallies), first_bad=first_bad)


def parts_in(index: Index, split: str) -> tuple[RowsPart, ...]:
    parts_of_split, first = [], 0
    for part in index.get("parts", ()):
        end = first + part["rows"][split]
        parts_of_split.append(RowsPart(part["name"], part["weight"], first, end))
        first = end
    return tuple(parts_of_split)


def parts_of(rows: Any) -> tuple[RowsPart, ...]:
    """The parts of the rows that a run has; none where they are of one data set."""
    parts: tuple[RowsPart, ...] = getattr(rows, "parts", ())
    return parts


def epoch_of(rows: Any) -> int:
    """How many rows an epoch has."""
    return sum(part.taken for part in parts_of(rows)) or len(rows)


def identity(rows: Any, held_out: Any) -> dict[str, str]:
    """What decides the loss curve of the data."""
    mix = ", ".join(f"{part.name}:{part.weight:g}" for part in parts_of(rows))
    return {"rows": rows.hash, "held-out rows": held_out.hash, **({"mix": mix} if mix else {})}


# -- the order -------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2)  # a step touches two epochs at most, and the rows may be many
def shuffled(count: int, *numbers: int) -> NDArray[np.int64]:
    return np.random.Generator(np.random.PCG64(numbers)).permutation(count)


shuffled_of_each = lru_cache(maxsize=64)(shuffled.__wrapped__)
"""The same for several data sets and their deck, each with its epochs."""


def rows_of_step(step: int, *, rows: int, rows_per_step: int, seed: int, parts: Sequence[RowsPart] = ()) -> list[int]:
    """The rows of step `step`, counted from 0; `parts`: of several data sets."""
    positions = range(step * rows_per_step, (step + 1) * rows_per_step)
    if parts:
        return [row_at(position, parts, seed) for position in positions]
    return [int(shuffled(rows, seed, position // rows)[position % rows]) for position in positions]


def row_at(position: int, parts: Sequence[RowsPart], seed: int) -> int:
    """An epoch is a deck in which each data set has as many cards as it is taken: the card says which of its rows is
    next, and its rows come in an order of their own that goes on from epoch to epoch."""
    deck = sum(part.taken for part in parts)
    epoch, place_in_deck = divmod(position, deck)
    card = int(shuffled_of_each(deck, seed, epoch)[place_in_deck])
    for number, part in enumerate(parts):
        if card < part.taken:
            cycle, place_in_part = divmod(epoch * part.taken + card, part.size)
            return part.first + int(shuffled_of_each(part.size, seed, cycle, number + 1)[place_in_part])
        card -= part.taken
    raise AssertionError(position)


def looked_at(rows: Any, most: int) -> list[tuple[str, list[int]]]:
    """The held-out rows that an evaluation looks at: of several data sets as many of each, as far as they reach."""
    parts = parts_of(rows)
    if not parts:
        return [("", list(range(min(len(rows), most))))]
    rows_of_part, left = {}, most
    for others, part in zip(range(len(parts), 0, -1), sorted(parts, key=lambda part: part.size), strict=True):
        rows_of_part[part.name] = list(range(part.first, part.first + min(part.size, left // others)))
        left -= len(rows_of_part[part.name])
    return [(part.name, rows_of_part[part.name]) for part in parts if rows_of_part[part.name]]
