"""A machine that stays on: the program that it gets on standard input runs here as it runs there."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console import processes
from console.rent import give_back_from_home, give_back_while_asleep
from console.rent.clore import Clore, offer_of
from console.rent.give_back_from_home import Kept
from console.rent.lease import Book, Lease
from console.rent.order import Shop, Terms, take
from lab.market import KEY, Books, serve, server
from tests.support import pace

THERE = [sys.executable, "-I", "-"]
"""A node has none of our modules."""


@pytest.fixture
def market() -> Iterator[tuple[Books, Clore]]:
    books = Books(servers=[server(6)])
    served = serve(books, "127.0.0.1", 0, pace_s=0.0)
    threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    yield books, Clore(key=KEY, url=f"http://127.0.0.1:{served.server_address[1]}/v1", pace_s=0.0)
    served.shutdown()
    served.server_close()


@pytest.fixture(autouse=True)
def in_no_hurry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(give_back_from_home, "AFTER_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "EVERY_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "LOOK_S", 0.5)
    monkeypatch.setattr(give_back_from_home, "DOUBT_S", 2.0)
    mark = f"keeper-{os.getpid()}"
    monkeypatch.setenv("MOTLEY_TEST", mark)
    yield
    processes.end(f"MOTLEY_TEST={mark}")


def rented(market: Clore, place: Path) -> Lease:
    shop = Shop(market=market, book=Book(place), watch=lambda lease: None)
    terms = Terms(offer=offer_of(server(6)), currency="USD-Blockchain", hours=1, public_key="ssh-ed25519 AAAA")
    with shop.book.alone():
        return shop.book.change(take(shop, terms), state="ready")


def test_it_gives_back_at_its_time_although_nobody_at_the_controller_lives(
    market: tuple[Books, Clore], tmp_path: Path
) -> None:
    books, client = market
    lease = rented(client, tmp_path)
    assert give_back_from_home.arm(THERE, client, lease, left_s=2.0) == Kept("")
    (order,) = books.orders.values()
    books.faults["cancel_order"] = ["500"] * 4
    assert order["ended"] is None
    pace.until(lambda: order["ended"] is not None, 60, "the keeper gives it back")


def test_before_its_time_it_gives_nothing_back(market: tuple[Books, Clore], tmp_path: Path) -> None:
    books, client = market
    assert give_back_from_home.arm(THERE, client, rented(client, tmp_path), left_s=3600.0).why == ""
    time.sleep(2)
    assert [order["ended"] for order in books.orders.values()] == [None]


def test_one_that_does_not_reach_the_market_says_so_before_anything_is_ordered(market: tuple[Books, Clore]) -> None:
    away = Clore(key=KEY, url="http://127.0.0.1:9/v1", pace_s=0.0)
    assert "the market: " in give_back_from_home.arm(THERE, away, None).why
    assert give_back_from_home.arm(THERE, market[1], None).why == ""
    silent = [sys.executable, "-c", "raise SystemExit('no such machine')"]
    assert give_back_from_home.arm(silent, market[1], None).why == "no such machine"


def test_the_key_is_on_no_command_line(market: tuple[Books, Clore], tmp_path: Path) -> None:
    assert give_back_from_home.arm(THERE, market[1], rented(market[1], tmp_path), left_s=3600.0).why == ""
    for pid in processes.alive(f"MOTLEY_TEST=keeper-{os.getpid()}"):
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_where_somebody_else_was_quicker_it_ends_once_no_doubt_is_left(
    market: tuple[Books, Clore], tmp_path: Path
) -> None:
    _, client = market
    assert give_back_from_home.arm(THERE, client, rented(client, tmp_path), left_s=2.0).why == ""
    pace.until(lambda: processes.alive(f"MOTLEY_TEST=keeper-{os.getpid()}"), 20, "it waits")
    client.cancel(1000)
    pace.until(
        lambda: not processes.alive(f"MOTLEY_TEST=keeper-{os.getpid()}"), 60, "it has ended, and the key with it"
    )


def test_after_a_restart_the_clock_tells_and_one_that_went_back_ends_all_time(monkeypatch: pytest.MonkeyPatch) -> None:
    at = time.time()
    facts = {
        "boot": give_back_while_asleep.boot(),
        "end_up": give_back_while_asleep.up() + 100,
        "end_wall": at - 5,
        "after_s": 30.0,
    }
    facts |= {"began_wall": at - 3600}
    assert 125 < give_back_while_asleep.left_s(facts) <= 130, "as long as it is the same start, no clock is asked"
    monkeypatch.setattr(give_back_while_asleep, "boot", lambda: "another start")
    assert 20 < give_back_while_asleep.left_s(facts) <= 25
    assert give_back_while_asleep.left_s(facts | {"began_wall": at + 60, "end_wall": at + 7200}) == 0.0
