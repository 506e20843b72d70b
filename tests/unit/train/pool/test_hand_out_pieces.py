"""What a process lays into the store of its group, and for how long. Several of them: tests/sim/pool_story.py."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from train.clock import Clock
from train.pool.hand_out_pieces import KEPT_S, Board, Watcher
from train.pool.pieces import Done, Known, Piece
from train.pool.record import Disk, Record


class Store:
    """What World has of a store, in a group of one."""

    rank, size, node = 0, 1, "n0"

    def __init__(self) -> None:
        self.values, self.count = dict[str, str](), 0

    def gather(self, value: Any) -> list[Any]:
        return [json.loads(json.dumps(value))]

    def new_name(self, kind: str) -> str:
        self.count += 1
        return f"{kind}/{self.count}"

    def change(self, name: str, alter: Callable[[Any], Any]) -> Any:
        before = self.values.get(name)
        self.values[name] = json.dumps(alter(json.loads(before) if before else None))
        return self.shared(name)

    def shared(self, name: str) -> Any:
        return json.loads(self.values[name])

    def write(self, name: str, text: str) -> None:
        self.values[name] = text

    def read(self, name: str) -> str | None:
        return self.values.get(name)

    def forget(self, name: str) -> None:
        self.values.pop(name, None)


class Numbers:
    """A recipe of sixty pieces."""

    def next(self, known: Known) -> Piece | None:
        number = next((number for number in range(60) if not known.has(number)), None)
        return None if number is None else Piece(number, {})

    def is_over(self, known: Known) -> bool:
        return len(known.done) == 60


class Quick:
    """Hands that are done as soon as they begin."""

    def __init__(self) -> None:
        self.running: Piece | None = None
        self.notes: list[dict[str, Any]] = []

    @property
    def is_free(self) -> bool:
        return self.running is None

    def start(self, piece: Piece) -> None:
        self.running = piece

    @property
    def ended(self) -> tuple[Piece, float, dict[str, Any]] | None:
        return (self.running, 0.5, {}) if self.running else None

    def brought(self) -> None:
        self.running = None

    drop = brought

    def wait(self, seconds: float) -> None: ...


def board(folder: Path, told: list[Done], time: Callable[[], float] = lambda: 0.0) -> Any:
    clock = Clock()
    clock.now = time
    watcher = Watcher(done=told.append, noted=lambda _: None)
    recipe: Any = Numbers()
    hands: Any = Quick()
    return Board(recipe, Record(folder / "n0.jsonl", Disk()), hands, watcher, 7, clock)


def test_what_came_of_a_piece_lies_in_the_store_for_a_while_only(tmp_path):
    ticks, told = iter(range(10**9)), list[Done]()
    hasty, calm = board(tmp_path / "hasty", told, lambda: next(ticks) * KEPT_S / 9), board(tmp_path, [])
    stores = Store(), Store()
    for one, store in zip((hasty, calm), stores, strict=True):
        one.run(store)
    left, all_of_them = ([name for name in store.values if "/result/" in name] for store in stores)
    assert len(hasty.record.done) == len(all_of_them) == 60 and 0 < len(left) < 10
    assert [(done.piece.number, done.generation) for done in told] == [(number, 7) for number in range(60)]


def test_what_was_told_of_a_piece_is_not_told_to_the_next_group_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Quick, "ended", None)
    one, store = board(tmp_path, []), Store()
    one.hands.running, one.hands.notes = Piece(0, {}), [{"loss": 2.0}]
    one.meet(store)
    one.bring(store)
    assert store.shared(one.name)["taken"]["0"]["notes"] == [{"loss": 2.0}]
