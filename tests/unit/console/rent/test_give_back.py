"""A machine that stays on: the program that it gets on standard input runs here as it runs there."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import processes
from console.rent import give_back_from_home, give_back_while_asleep
from console.rent.clore import Clore
from console.rent.give_back_from_home import Kept
from console.rent.lease import Book
from lab.market import KEY, Books
from tests.support import pace
from tests.support.rented import rented_there

THERE = [sys.executable, "-I", "-"]
"""A node has none of our modules."""


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(give_back_from_home, "AFTER_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "EVERY_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "LOOK_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "DOUBT_S", 1.0)
    mark = f"keeper-{os.getpid()}"
    monkeypatch.setenv("MOTLEY_TEST", mark)
    yield
    processes.end(f"MOTLEY_TEST={mark}")


def keepers() -> list[int]:
    return processes.alive(f"MOTLEY_TEST=keeper-{os.getpid()}")


def test_it_gives_back_at_its_time_although_nobody_at_the_controller_lives(
    books: Books, market: Clore, tmp_path: Path
) -> None:
    lease = rented_there(market, Book(tmp_path))
    assert give_back_from_home.arm(THERE, market, lease, left_s=2.0) == Kept("")
    (order,) = books.orders.values()
    books.faults["cancel_order"] = ["taken"]
    assert order["ended"] is None
    pace.until(lambda: order["ended"] is not None, 60, "the keeper gives it back")


def test_one_that_does_not_reach_the_market_says_so_before_anything_is_ordered(market: Clore) -> None:
    away = Clore(key=KEY, url="http://127.0.0.1:9/v1", pace_s=0.0)
    assert "the market: " in give_back_from_home.arm(THERE, away, None).why
    assert give_back_from_home.arm(THERE, market, None).why == ""
    silent = [sys.executable, "-c", "raise SystemExit('no such machine')"]
    assert give_back_from_home.arm(silent, market, None).why == "no such machine"


def test_where_somebody_else_was_quicker_it_ends_once_no_doubt_is_left(market: Clore, tmp_path: Path) -> None:
    assert give_back_from_home.arm(THERE, market, rented_there(market, Book(tmp_path)), left_s=2.0).why == ""
    pace.until(keepers, 20, "it waits")
    for pid in keepers():
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
    market.cancel(1000)
    pace.until(lambda: not keepers(), 60, "it has ended, and the key with it")


def test_after_a_restart_the_clock_tells_and_one_that_went_back_ends_all_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.time()
    facts = {"boot": give_back_while_asleep.boot(), "end_up": give_back_while_asleep.up() + 100, "after_s": 30.0}
    facts |= {"began_wall": at - 3600, "end_wall": at - 5}
    assert 125 < give_back_while_asleep.left_s(facts) <= 130, "as long as it is the same start, no clock is asked"
    monkeypatch.setattr(give_back_while_asleep, "boot", lambda: "another start")
    assert 20 < give_back_while_asleep.left_s(facts) <= 25
    assert give_back_while_asleep.left_s(facts | {"began_wall": at + 60, "end_wall": at + 7200}) == 0.0
