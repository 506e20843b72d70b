"""kill -9 before each single call to the system that touches a lease or the market, with real processes, files and
sockets. Whoever comes next finds at most one order, and gives it back."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer
from pathlib import Path

import pytest

from console.rent.clore import Clore, offer_of
from console.rent.compare_and_give_back import reconcile
from console.rent.lease import Book
from console.rent.order import Shop, Terms, take
from lab.market import KEY, Books, serve, server

ROOT = Path(__file__).parents[4]


@contextmanager
def market() -> Iterator[tuple[Books, str]]:
    books = Books(servers=[server(6)])
    served = serve(books, "127.0.0.1", 0, pace_s=0.0, kind=HTTPServer)  # one request after the other
    threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield books, f"http://127.0.0.1:{served.server_address[1]}/v1"
    finally:
        served.shutdown()
        served.server_close()


def child(what: str, url: str, folder: Path, kill_at: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "tests.support.rented_child", what, url, str(folder), str(kill_at)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def rented(url: str, folder: Path) -> None:
    shop = Shop(market=Clore(key=KEY, url=url, pace_s=0.0), book=Book(folder), watch=lambda lease: None)
    terms = Terms(offer=offer_of(server(6)), currency="USD-Blockchain", hours=1, public_key="ssh-ed25519 AAAA")
    with shop.book.alone():
        shop.book.change(take(shop, terms), state="ready")


def killed_everywhere(what: str, place: Path, every: int, first: int = 1) -> int:
    """How many places there were; each is tried with a market of its own."""
    at = first
    while True:
        folder = place / str(at)
        with market() as (books, url):
            if what != "take":
                rented(url, folder)
            done = child(what, url, folder, at)
            if done.returncode == 0:
                return int(done.stdout.split()[-1])
            assert done.returncode == -9, done.stderr
            after_it(books, url, folder, f"killed before call {at} of {what}")
        at += every


def after_it(books: Books, url: str, folder: Path, told: str) -> None:
    again = Clore(key=KEY, url=url, pace_s=0.0)
    again.orders()  # what the killed one has sent is done before this is answered
    made = len(books.orders)
    assert made <= 1, told
    book = Book(folder)
    for lease in book.leases():
        if lease.state == "ready":
            book.change(lease, state="returning", why="the test is over")
    reconcile(again, book)
    assert [order for order in books.orders.values() if order["ended"] is None] == [], told
    assert len(books.orders) == made, told
    assert books.asked.count("create_order") <= 1, told
    for lease in book.leases():  # an order may still come for it: it waits, and is not sent again
        assert (lease.order, made) == (0, 0), told


@pytest.mark.parametrize("what", ["take", "watch", "close"])
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)], ids=["each third call", "each call"])
def test_killed_before_any_call_nothing_is_ordered_twice_or_kept(what: str, every: int, tmp_path: Path) -> None:
    assert killed_everywhere(what, tmp_path, every, first=1 + every // 2) > 15
