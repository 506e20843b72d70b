"""The thread that does one piece after the other: what ends one, and what hangs."""

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import pace
from train.clock import Clock
from train.plan.settings.read_settings import load_config
from train.pool.piece_thread import FIRST_S, STUCK, STUCK_S, Desk, Hands
from train.pool.pieces import Done, Known, Piece
from train.runlog.events import EventLog


class Waits:
    """A recipe whose piece takes as long as the test wants."""

    total = 3

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.begun = threading.Event()

    def load(self, desk: Any) -> None: ...

    def work(self, piece: Piece, desk: Any) -> dict[str, Any]:
        self.begun.set()
        self.goes_on.wait(pace.HANG_S)
        if desk.is_stopped.is_set():
            raise RuntimeError("cut off")
        return {"number": piece.number}


class Played:
    def __init__(self) -> None:
        self.time, self.said, self.recipe = 100.0, list[str](), Waits()
        clock = Clock()
        clock.now = lambda: self.time
        self.desk = Desk(
            config=load_config({"model": "tiny"}), node="n0", device="cpu", precision="fp32",
            known=lambda: Known({}, {}), doing=self.said.append, clock=clock,
        )  # fmt: skip
        self.hands = Hands(self.recipe, self.desk)

    def begins(self, number: int) -> None:
        pace.until(lambda: self.hands.is_free, 10)
        self.hands.start(Piece(number, {}))
        assert self.recipe.begun.wait(10)


@pytest.fixture
def played() -> Iterator[Played]:
    found = Played()
    yield found
    found.recipe.goes_on.set()


def done(node: str, seconds: float) -> Done:
    return Done(Piece(9, {}), node, seconds, {})


def test_what_came_of_a_piece_waits_until_it_was_brought(played):
    played.begins(1)
    played.time += 7.0
    played.recipe.goes_on.set()
    pace.until(lambda: played.hands.ended, 10)
    assert played.hands.ended == (Piece(1, {}), 7.0, {"number": 1}) and not played.hands.is_free
    played.hands.brought()
    assert played.hands.ended is None and played.hands.is_free
    assert played.said == ["at its first piece"]


def test_what_comes_of_a_piece_that_was_dropped_is_nothing(played):
    played.begins(1)
    played.hands.drop()
    played.recipe.goes_on.set()
    pace.until(lambda: played.hands.is_free, 10)
    assert played.hands.ended is None and played.hands.error is None


def test_who_leaves_begins_nothing_more(played):
    played.begins(1)
    played.hands.leave()
    played.recipe.goes_on.set()
    pace.until(lambda: not played.hands.running, 10)
    assert played.hands.ended is None and not played.hands.is_free


def test_a_failure_of_its_own_is_kept_for_who_asks(played):
    played.begins(1)
    played.desk.is_stopped.set()  # it fails, and nobody has dropped it
    played.recipe.goes_on.set()
    pace.until(lambda: played.hands.error, 10)
    assert str(played.hands.error) == "cut off"


@pytest.mark.parametrize(
    ("others", "silent_s", "hangs"),
    [
        ([], FIRST_S - 1, False),  # nobody knows yet how long one takes
        ([], FIRST_S + 1, True),
        ([done("n0", 0.1)], STUCK_S - 1, False),
        ([done("n0", 0.1)], STUCK_S + 1, True),
        ([done("n0", 60.0)], 60.0 * STUCK - 1, False),
        ([done("n0", 60.0)], 60.0 * STUCK + 1, True),
        ([done("fast", 60.0)], 60.0 * STUCK * STUCK - 1, False),  # this machine may be far slower
        ([done("fast", 60.0)], 60.0 * STUCK * STUCK + 1, True),
    ],
)
def test_a_piece_hangs_that_is_silent_far_longer_than_any_took(played, others, silent_s, hangs):
    played.begins(1)
    played.time += silent_s
    assert played.hands.hangs(others) == hangs
    played.desk.note({"loss": 2.0})
    assert not played.hands.hangs(others), "it has just told something"


def test_who_has_nothing_to_write_shows_that_it_lives(tmp_path):
    log = EventLog(file := tmp_path / "events.jsonl")
    os.utime(file, (1, 1))
    log.lives()
    assert file.stat().st_mtime > 1 and not file.read_text()
    EventLog(None).lives()
