"""Processes that share a list, each in a thread: what is laid into their store, and for how long."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support import pace
from train.clock import Clock
from train.pool.pieces import Done, Known, Piece
from train.pool.record import OwnDisk, Record
from train.pool.shared_list import KEPT_S, Board, Watcher


class Store:
    """What World has of a store, for threads."""

    def __init__(self, rank: int, size: int, values: dict[str, str], lock: threading.Lock) -> None:
        self.rank, self.size, self.node = rank, size, f"n{rank}"
        self.values, self.lock, self.count = values, lock, 0

    def gather(self, value: Any) -> list[Any]:
        name = self.new_name("gather")
        self.write(f"{name}/{self.rank}", json.dumps(value))
        names = [f"{name}/{rank}" for rank in range(self.size)]
        pace.until(lambda: all(one in self.values for one in names), pace.HANG_S, every_s=0.002)
        return [json.loads(self.values[one]) for one in names]

    def new_name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}/{self.count}"

    def change(self, name: str, alter: Callable[[Any], Any]) -> Any:
        while True:
            before = self.values.get(name)
            found = alter(json.loads(before) if before else None)
            with self.lock:
                if self.values.get(name) == before:
                    self.values[name] = json.dumps(found)
                    return found

    def shared(self, name: str) -> Any:
        return json.loads(self.values[name])

    def write(self, name: str, text: str) -> None:
        self.values[name] = text

    def read(self, name: str) -> str | None:
        return self.values.get(name)

    def forget(self, name: str) -> None:
        self.values.pop(name, None)


class Numbers:
    """A recipe of so many pieces."""

    def __init__(self, total: int) -> None:
        self.total = total

    def next(self, known: Known) -> Piece | None:
        number = next((number for number in range(self.total) if not known.has(number)), None)
        return None if number is None else Piece(number, {})

    def is_over(self, known: Known) -> bool:
        return len(known.done) == self.total


class Quick:
    """Hands that are done as soon as they begin."""

    def __init__(self, node: str) -> None:
        self.node, self.running, self.notes = node, None, list[dict[str, Any]]()
        self.begun: list[int] = []

    @property
    def is_free(self) -> bool:
        return self.running is None

    def start(self, piece: Piece) -> None:
        self.running = piece  # type: ignore[assignment]
        self.begun.append(piece.number)

    @property
    def ended(self) -> tuple[Piece, float, dict[str, Any]] | None:
        return (self.running, 0.5, {"by": self.node}) if self.running else None

    def brought(self) -> None:
        self.running = None

    def drop(self) -> None:
        self.running = None

    def wait(self, seconds: float) -> None:
        threading.Event().wait(0.002)


class Node:
    def __init__(self, rank: int, folder: Path, total: int, time: Callable[[], float]) -> None:
        self.hands, self.told = Quick(f"n{rank}"), list[Done]()
        self.record = Record(folder / f"n{rank}.jsonl", OwnDisk())
        watcher = Watcher(done=self.told.append, noted=lambda _: None)
        recipe: Any = Numbers(total)
        clock = Clock()
        clock.now = time  # type: ignore[method-assign]
        self.board = Board(recipe, self.record, self.hands, watcher, 7, clock)  # type: ignore[arg-type]


def run(nodes: list[Node]) -> dict[str, str]:
    values, lock = dict[str, str](), threading.Lock()
    stores = [Store(rank, len(nodes), values, lock) for rank in range(len(nodes))]
    threads = [
        threading.Thread(target=node.board.run, args=(store,), daemon=True)
        for node, store in zip(nodes, stores, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(pace.HANG_S)
        assert not thread.is_alive()
    return values


def test_each_piece_is_begun_once_and_all_have_all(tmp_path: Path) -> None:
    nodes = [Node(rank, tmp_path, 60, lambda: 0.0) for rank in range(3)]
    run(nodes)
    begun = sorted(number for node in nodes for number in node.hands.begun)
    assert begun == list(range(60))
    records = [node.record.done for node in nodes]
    assert records[0] == records[1] == records[2] and {done.generation for done in records[0].values()} == {7}
    assert all(sorted(done.piece.number for done in node.told) == list(range(60)) for node in nodes)


def test_a_member_that_comes_gets_what_the_others_have(tmp_path: Path) -> None:
    nodes = [Node(rank, tmp_path, 8, lambda: 0.0) for rank in range(2)]
    for number in range(6):
        nodes[0].record.add(Done(Piece(number, {}), "n9", 1.0, {}, 3))
    nodes[1].record.add(Done(Piece(5, {}), "n1", 1.0, {"alone": True}, 2))
    run(nodes)
    assert nodes[1].record.done == nodes[0].record.done and nodes[1].record.done[5].node == "n9"
    assert sorted(nodes[0].hands.begun + nodes[1].hands.begun) == [6, 7]


def test_what_came_of_a_piece_lies_in_the_store_for_a_while_only(tmp_path: Path) -> None:
    ticks = iter(range(10**9))
    hasty, calm = Node(0, tmp_path / "hasty", 60, lambda: next(ticks) * KEPT_S / 9), Node(0, tmp_path, 60, lambda: 0.0)
    left, all_of_them = ([name for name in run([node]) if "/result/" in name] for node in (hasty, calm))
    assert len(hasty.record.done) == len(all_of_them) == 60 and 0 < len(left) < 10


def test_what_was_told_of_a_piece_is_not_told_to_the_next_group_again(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Quick, "ended", None)
    node, store = Node(0, tmp_path, 8, lambda: 0.0), Store(0, 1, {}, threading.Lock())
    node.hands.running, node.hands.notes = Piece(0, {}), [{"loss": 2.0}]  # type: ignore[assignment]
    node.board.meet(store)
    node.board.bring(store)
    assert store.shared(node.board.name)["taken"]["0"]["notes"] == [{"loss": 2.0}]
