"""What must hold of a run in pieces, whatever happens. It sees all machines, their disks and lists at once."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.sim.truth import Truth
from train.pool.pieces import Done, Piece

if TYPE_CHECKING:
    from tests.sim.pool import PlayedStore, PoolWorker

TIMES, MORE_S = 3.5, 1.5
"""A machine may do again what another does, only if it takes it at most so many times as long, and so much."""


@dataclass(eq=False)
class PoolTruth(Truth):
    on_disk: dict[str, dict[int, tuple[int, str]]] = field(default_factory=dict)
    """Of each machine the generation and result of each piece, as who reads its record finds them."""
    settled: dict[int, str] = field(default_factory=dict)
    """Results that a majority has had on the disk."""
    total: int = 0
    executions: int = 0
    """Pieces that were begun."""
    completed: int = 0
    doubled: int = 0
    """Results that gave way to another."""
    finished_at: float = 0.0
    finishers: list[str] = field(default_factory=list)
    """The members of the group that has done the last piece."""
    heard: dict[tuple[int, str], int] = field(default_factory=dict)
    """The last part of each execution that a process has told who watches."""
    can_judge_pace: bool = False
    """Whether a machine's seconds in the record are those that it works."""

    # -- what is done --------------------------------------------------------------------------------------------------

    def begins_piece(self, worker: PoolWorker, piece: Piece) -> str:
        self.executions += 1
        token = f"{worker.name} {self.executions}"
        self.play.note(f"{worker.name} begins piece {piece.number} in generation {worker.number} (execution {token})")
        store, number = worker.store, piece.number
        if number in worker.record.done:
            self.breaks(f"{worker.name} begins piece {number}, of which it has the result")
        if store is None or worker not in store.members.values():
            return token
        if number in store.had:
            self.breaks(f"{worker.name} begins piece {number}, which was done as its group began")
        self._is_worth_it(worker, piece, store)
        return token

    def _is_worth_it(self, worker: PoolWorker, piece: Piece, store: PlayedStore) -> None:
        number = piece.number
        doers = [
            one
            for one in store.members.values()
            if one is not worker and one.store is store and not one.life.is_over and not one.hands.is_dropped
            and one.hands.running and one.hands.running.number == number
        ]  # fmt: skip
        if not doers:
            return
        now = next((json.loads(value)[0] for name, value in store.values.items() if name.count("/") == 2
                    and name.startswith("motley/pieces")), None)  # fmt: skip
        had = {*worker.record.done, *map(int, now["taken"]), *(each for each, _ in now["done"])}
        if left := set(range(self.total)) - had:
            self.breaks(f"{worker.name} begins piece {number} of {doers[0].name}, though nobody has {min(left)}")
        longest_s = max(piece.what["cost"] * one.node.step_s for one in doers)
        takes_s = piece.what["cost"] * worker.node.step_s
        well = not any(one.life.is_held or one.is_hung for one in doers)
        if self.can_judge_pace and well and takes_s > TIMES * longest_s + MORE_S:
            self.breaks(f"{worker.name} begins piece {number}, which takes it {takes_s:.1f} s, and {doers[0].name} that"
                        f" does it only {longest_s:.1f} s")  # fmt: skip

    def ends_piece(self, worker: PoolWorker, piece: Piece) -> None:
        self.completed += 1

    # -- what is known -------------------------------------------------------------------------------------------------

    def meets(self, worker: PoolWorker, store: PlayedStore) -> None:
        store.had |= {*worker.record.done}

    def noted(self, worker: PoolWorker, fact: dict[str, Any]) -> None:
        last, part = self.heard.get((worker.pid, fact["of"]), -1), fact["part"]
        if part <= last:
            self.breaks(f"{worker.name} is told {fact} twice or too late")
        self.heard[worker.pid, fact["of"]] = part

    def recorded(self, name: str, done: Done) -> None:
        number, token, has = done.piece.number, str(done.result["token"]), self.on_disk.setdefault(name, {})
        generation, before = has.get(number, (-1, ""))
        self.play.note(f"{name} has piece {number}: {token} (generation {done.generation})")
        if "stopped" in token:
            self.breaks(f"{name} takes piece {number} for done, which was {token}")
        if before and before == self.settled.get(number) and token != before:
            self.breaks(f"{name} replaces the result of piece {number}, {before}, which a majority has, by {token}")
        if before and done.generation <= generation:
            self.breaks(f"{name} notes piece {number} of generation {done.generation} after that of {generation}")
        for one, each in self.on_disk.items():
            if each.get(number, (-1, ""))[0] == done.generation and each[number][1] != token:
                self.breaks(f"{name} has {token} of piece {number}, and {one} of the same generation {each[number][1]}")
        self.doubled += bool(before) and before != token
        has[number] = done.generation, token
        holders = [one for one, each in self.on_disk.items() if each.get(number, (0, ""))[1] == token]
        if self.can_train(holders) and self.settled.setdefault(number, token) != token:
            self.breaks(f"a majority has {token} of piece {number}, and had {self.settled[number]}")

    def finishes(self, worker: PoolWorker) -> None:
        """With all pieces in its record, on its disk."""
        if not self.finished_at:
            assert worker.store
            self.finished_at, self.finishers = self.play.time, [one.name for one in worker.store.members.values()]
        has = self.on_disk.get(worker.name, {})
        if lacks := set(range(self.total)) - set(has):
            self.breaks(f"{worker.name} ends, and its record has no piece {sorted(lacks)}")
        self.play.note(f"{worker.name} has finished")

    def check_records(self, names: list[str], files: dict[str, bytes]) -> None:
        """In the end: those that have ended have the same, and it is that of the majority."""
        for name in names:
            found: dict[int, Done] = {}
            for line in files[name].splitlines():
                done = Done.of(json.loads(line))
                if done.piece.number not in found or found[done.piece.number].generation < done.generation:
                    found[done.piece.number] = done
            tokens = {number: done.result["token"] for number, done in found.items()}
            for number in range(self.total):
                if number not in tokens:
                    self.breaks(f"piece {number} is lost: the record of {name} lacks it")
                if tokens[number] != self.settled.get(number, tokens[number]):
                    self.breaks(f"{name} has {tokens[number]} of piece {number}, a majority {self.settled[number]}")
