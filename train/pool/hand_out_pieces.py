"""A process in a group, as one of those who share a list of pieces: it takes what is next, brings what came of it, and
keeps what the others bring.

Nobody leads: the list is one value in the group's store, and whoever is free changes it. Where the group ends, the
piece that is being done goes on, and the next group begins with what its members have and do.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from train.clock import Clock
from train.pool import PoolRecipe, pieces
from train.pool.piece_thread import Hands
from train.pool.pieces import Done, Known, List, Piece, Taken
from train.pool.record import Record

if TYPE_CHECKING:
    from train.parallel.process_group import World

LOOK_S, BUSY_LOOK_S = 0.1, 0.5
"""Seconds between two looks at the list: of who has nothing to do, and of who is at work."""
KEPT_S = 60.0
"""How long what came of a piece stays in the store. Who lives takes it within a second; for who was away longer the
next group has it."""


@dataclass(frozen=True, kw_only=True)
class Watcher:
    """Who is told what happens."""

    done: Callable[[Done], None]
    noted: Callable[[Taken], None]


class Board:
    def __init__(  # noqa: PLR0917 - whom it works for
        self, recipe: PoolRecipe, record: Record, hands: Hands, watcher: Watcher, generation: int, clock: Clock
    ) -> None:
        self.recipe, self.record, self.hands, self.watcher = recipe, record, hands, watcher
        self.generation, self.now, self.lock = generation, clock.now, clock.lock()
        self.is_closed = False
        self.name = ""
        self.results: dict[int, str] = {}
        """Pieces that this group brought, by where what came of them lies."""
        self.written: deque[tuple[float, str]] = deque()
        """What this process has laid into the store and when, the oldest first."""
        self.told = 0
        """Notes of the running piece that the group knows."""
        self.began: dict[int, float] = {}
        """When each piece was first seen taken."""
        self.taken: dict[int, Taken] = {}

    def close(self) -> None:
        """Its process is in another group: from now on nothing that this one tells counts."""
        with self.lock:
            self.is_closed = True

    def run(self, group: World) -> None:
        """Until all is done, and all members know."""
        self.meet(group)
        while not self.is_closed:
            self.take_in(group, group.shared(self.name))
            if self.is_closed:  # it may have waited long for the list
                return
            if self.recipe.is_over(self.known):
                self.with_hands(self.hands.drop)
                group.gather("all is done")
                return
            self.bring(group)
            if self.hands.is_free:
                self.take(group)
            self.forget_old(group)
            self.hands.wait(LOOK_S if self.hands.is_free else BUSY_LOOK_S)

    @property
    def known(self) -> Known:
        return Known(done=dict(self.record.done), taken=dict(self.taken))

    # -- the group begins ----------------------------------------------------------------------------------------------

    def meet(self, group: World) -> None:
        """All members have what any of them has, and know what each is doing."""
        self.name = group.new_name("pieces")
        has = [dict(map(tuple, each)) for each in group.gather(sorted(self.record.generations.items()))]
        holders = pieces.newest(has)
        for number, rank in holders.items():
            if rank == group.rank and any(other.get(number) != has[rank][number] for other in has):
                self.write(group, f"{self.name}/kept/{number}", self.record.done[number])
        running, notes = self.hands.running, tuple(self.hands.notes)
        self.told = len(notes)
        found = group.gather(Taken(running, (group.node,), notes).facts() if running else None)
        for number, rank in holders.items():
            if self.record.generations.get(number) != has[rank][number]:
                self.keep(Done.of(json.loads(group.read(f"{self.name}/kept/{number}") or "")))
        begun = pieces.first_list(found, self.record.done)
        group.change(self.name, lambda now: now or begun)

    # -- what the others bring -----------------------------------------------------------------------------------------

    def take_in(self, group: World, now: List) -> None:
        for number, rank in now["done"]:
            if number not in self.results:
                self.results[number] = self.result_name(number, rank)
                done = Done.of(json.loads(group.read(self.results[number]) or ""))
                self.keep(done)
        self.taken = {int(number): Taken.of(each) for number, each in now["taken"].items()}
        for number, each in self.taken.items():
            self.began.setdefault(number, self.now())
            self.watcher.noted(each)
        running = self.hands.running
        if running and running.number in self.record.done:
            self.with_hands(self.hands.drop)

    def write(self, group: World, name: str, done: Done) -> None:
        group.write(name, json.dumps(done.facts()))
        self.written.append((self.now(), name))

    def forget_old(self, group: World) -> None:
        """The answers of a night would fill the memory of who keeps the store."""
        while self.written and self.now() > self.written[0][0] + KEPT_S:
            group.forget(self.written.popleft()[1])

    def keep(self, done: Done) -> None:
        with self.lock:
            if not self.is_closed and self.record.add(done):
                self.watcher.done(done)

    def result_name(self, number: int, rank: int) -> str:
        return f"{self.name}/result/{number}/{rank}"

    # -- what this one does --------------------------------------------------------------------------------------------

    def bring(self, group: World) -> None:
        """Tells the group what it does not know yet. Until it does, what has ended stays in these hands."""
        running = self.hands.running
        for fact in self.hands.notes[self.told :] if running else ():
            assert running
            self.change(group, partial(pieces.with_note, number=running.number, fact=fact))
            self.told += 1
        if not (ended := self.hands.ended):
            return
        piece, seconds, result = ended
        if piece.number not in self.record.done:
            data = getattr(self.recipe, "data", "")
            done = Done(piece, group.node, round(seconds, 3), result, self.generation, data)
            self.write(group, self.result_name(piece.number, group.rank), done)
            self.change(group, partial(pieces.with_done, number=piece.number, rank=group.rank))
        self.with_hands(self.hands.brought)

    def with_hands(self, act: Callable[[], None]) -> None:
        """Nothing, once they are another board's."""
        with self.lock:
            if not self.is_closed:
                act()

    def take(self, group: World) -> None:
        """Takes the next piece, where there is one."""
        chosen: list[Piece] = []

        def taken(now: List) -> List:
            self.take_in(group, now)
            chosen[:] = [piece] if (piece := self.next(group)) else []
            return pieces.with_taken(now, chosen[0], group.node) if chosen else now

        if self.next(group):
            self.change(group, taken)
        if chosen:
            self.told = 0
            self.with_hands(partial(self.hands.start, chosen[0]))

    def next(self, group: World) -> Piece | None:
        """What nobody has; else what this one would end before those who do it."""
        known = self.known
        if piece := self.recipe.next(known):
            return piece
        passed_s = {number: self.now() - self.began[number] for number in known.taken}
        number = pieces.worth_again(known.taken, passed_s, mean_s(known), group.node)
        may = getattr(self.recipe, "may_take", lambda _: True)
        return piece if number >= 0 and may(piece := known.taken[number].piece) else None

    def change(self, group: World, alter: Callable[[List], List]) -> None:
        self.take_in(group, group.change(self.name, alter))


def mean_s(known: Known) -> dict[str, float]:
    """Machine → the seconds that its pieces took, on average."""
    seconds: dict[str, list[float]] = {}
    for done in known.done.values():
        seconds.setdefault(done.node, []).append(done.seconds)
    return {node: sum(each) / len(each) for node, each in seconds.items()}
