"""Who makes which answer of a rollout: pieces from one list, for whoever is free; and who is slow at the end hands some
of what it has begun to who waits.

An answer does not depend on who makes it, or on who begins it and who ends it (models/sample_tokens.py). So this
decides how long a rollout takes, and nothing else. What the nodes share is one record in their store, changed by
one at a time:

    next    the first answer that nobody has yet
    idle    who waits for work
    gone    who makes no more answers, as its rewards do not work
    given   by rank, what another has begun and handed to it
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from train.errors import PeerFailed
from train.models.sample_tokens import Answer
from train.parallel.process_group import HINT, World
from train.plan.speed.row_split import fastest_split, split_rows

LOOK_S = 0.1
"""Seconds between two looks whether somebody waits, while answers are made."""
POLL_S = 0.003
WORTH_TOKENS = 4
"""An answer that can grow by fewer tokens is ended where it is: to take it over is to read its prompt again."""

Record = dict[str, Any]
EMPTY: Record = {"next": 0, "idle": [], "gone": [], "given": {}}


@dataclass(frozen=True)
class Begun:
    """An answer that is to be made, or of which another has made a part."""

    number: int
    answer: Answer = field(default_factory=Answer.none)


def asked(record: Record | None, rank: int, count: int, most: int) -> Record:
    """`rank` wants work: what was given to it is its own, else up to `most` new ones, else it waits."""
    now = {**EMPTY, **(record or {})}
    if str(rank) in now["given"]:
        return now | {"given": {to: rows for to, rows in now["given"].items() if to != str(rank)}}
    if now["next"] < count:
        return now | {"next": min(count, now["next"] + most)}
    return now | {"idle": sorted({*now["idle"], rank})}


def handed(record: Record | None, parts: dict[int, list[Any]]) -> Record:
    """What one has begun goes to those who still wait."""
    now = {**EMPTY, **(record or {})}
    taken = {rank: rows for rank, rows in parts.items() if rank in now["idle"] and rows}
    return now | {
        "idle": [rank for rank in now["idle"] if rank not in taken],
        "given": now["given"] | {str(rank): rows for rank, rows in taken.items()},
    }


def is_over(record: Record, size: int) -> bool:
    return not record["given"] and len({*record["idle"], *record["gone"]}) == size


class HandOut:
    """One rollout's list, as one rank sees it."""

    def __init__(self, world: World, speeds: Sequence[float], count: int) -> None:
        """`speeds`: of each rank, in any unit; `count`: the answers of all."""
        self.world, self.speeds, self.count = world, speeds, count
        self.name, self.rank = world.new_name("answers"), world.rank
        self.first = split_rows(count, speeds)[self.rank]
        self.rest = 0
        """Answers that nobody has yet, as it was when this rank asked last."""
        self.given: set[int] = set()
        """What this rank has had and handed over."""
        self.handed_over = 0
        self.idle_s = 0.0
        self.looked = time.monotonic()

    def next(self, at_once: int) -> list[Begun]:
        """What this rank is to make, its own share at first; nothing when all answers are made."""
        share = self.first or -(-self.rest * self.speeds[self.rank] // sum(self.speeds))
        self.first, most = 0, max(1, min(at_once, int(share)))
        before: Record = {}

        def ask(record: Record | None) -> Record:
            before.clear()
            before.update(EMPTY | (record or {}))
            return asked(record, self.rank, self.count, most)

        after = self.world.change(self.name, ask)
        self.rest = self.count - after["next"]
        if mine := before["given"].get(str(self.rank)):
            begun = from_json(mine)
            self.given -= {one.number for one in begun}  # it may have begun with this rank
            return begun
        if after["next"] > before["next"]:
            return [Begun(number) for number in range(before["next"], after["next"])]
        return self.wait(after)

    def wait(self, record: Record) -> list[Begun]:
        started = time.monotonic()
        while not is_over(record, self.world.size):
            if str(self.rank) in record["given"]:
                self.idle_s += time.monotonic() - started
                return self.next(1)
            self.world.require_group()
            if time.monotonic() - started > self.world.patience.total_seconds():
                raise PeerFailed(f"nobody has ended its answers for {self.world.patience.total_seconds():.0f} s{HINT}")
            time.sleep(POLL_S)
            record = self.world.shared(self.name)
        self.idle_s += time.monotonic() - started
        return []

    def leave(self) -> None:
        """This rank makes no more: nobody waits for it, or gives to it."""
        self.world.change(self.name, lambda record: gone(record, self.rank))

    def stays(self, live: Sequence[Begun], most: int) -> set[int]:
        """The numbers of those that this rank goes on with; who waits gets the others."""
        numbers = {one.number for one in live}
        if self.world.size == 1 or not live or most - len(live[0].answer.tokens) < WORTH_TOKENS:
            return numbers
        if time.monotonic() - self.looked < LOOK_S:
            return numbers
        self.looked = time.monotonic()
        self.world.require_group()
        record = self.world.shared(self.name)
        if not record["idle"] or record["next"] < self.count:
            return numbers
        given = self.hand_over(live, record["idle"])
        self.given |= given
        self.handed_over += len(given)
        return numbers - given

    def hand_over(self, live: Sequence[Begun], idle: Sequence[int]) -> set[int]:
        counts = fastest_split(len(live), [self.speeds[rank] or 1e-9 for rank in (self.rank, *idle)])
        ends = [sum(counts[: at + 1]) for at in range(len(counts))]
        parts = {rank: live[ends[at] : ends[at + 1]] for at, rank in enumerate(idle)}
        written = {rank: [to_json(one) for one in part] for rank, part in parts.items()}
        before: set[int] = set()

        def give(record: Record | None) -> Record:
            before.clear()
            before.update((record or EMPTY)["idle"])
            return handed(record, written)

        self.world.change(self.name, give)
        return {one.number for rank, part in parts.items() if rank in before for one in part}


def gone(record: Record | None, rank: int) -> Record:
    now = {**EMPTY, **(record or {})}
    return now | {"gone": sorted({*now["gone"], rank}), "idle": [one for one in now["idle"] if one != rank]}


def to_json(one: Begun) -> list[Any]:
    return [one.number, one.answer.tokens, one.answer.log_p]


def from_json(rows: list[Any]) -> list[Begun]:
    return [Begun(number, Answer(tokens=tokens, log_p=log_p)) for number, tokens, log_p in rows]
