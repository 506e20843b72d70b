"""kill -9 before each single call to the system that touches a lease or the market, with real processes, files and
sockets. Whoever comes next finds at most one order, and gives it back."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable
from http.server import HTTPServer
from pathlib import Path
from typing import Any

import pytest

from console.rent.clore import Clore
from console.rent.compare_and_give_back import reconcile, want_back
from console.rent.lease import Book
from console.rent.watcher import watch
from lab.market import KEY, Books
from tests.support.rented import rented_there, served_market

FORK = multiprocessing.get_context("fork")
CALLS = [
    *((os, name) for name in ("open", "write", "fsync", "close", "replace", "unlink", "makedirs")),
    (fcntl, "flock"),
    *((socket.socket, name) for name in ("connect", "sendall", "recv_into")),
]


def renter(what: str, url: str, folder: Path, kill_at: int, count: Any) -> None:
    """A process that is killed before its Nth call to the system; it counts them."""

    def before(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **named: Any) -> Any:
            count.value += 1
            if count.value == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*words, **named)

        return counted

    market, book = Clore(key=KEY, url=url, pace_s=0.0, timeout_s=3.0), Book(folder)
    for place, name in CALLS:
        setattr(place, name, before(getattr(place, name)))
    if what == "take":
        rented_there(market, book)
        return
    (lease,) = book.leases()
    if what == "watch":
        watch(market, book, lease, lambda _: "the run is done")
    else:
        want_back(book, lease, "asked for")
        reconcile(market, book)


def killed_everywhere(what: str, place: Path, every: int, first: int = 1) -> int:
    """How many places there were; each is tried with a market of its own."""
    at = first
    while True:
        folder = place / str(at)
        with served_market(HTTPServer) as (books, client):  # one request after the other
            if what != "take":
                rented_there(client, Book(folder))
            count = FORK.RawValue("i")
            process = FORK.Process(target=renter, args=(what, client.url, folder, at, count))
            process.start()
            process.join(60)
            if process.exitcode == 0:
                return int(count.value)
            assert process.exitcode == -signal.SIGKILL, f"call {at} of {what}"
            after_it(books, client, folder, f"killed before call {at} of {what}")
        at += every


def after_it(books: Books, client: Clore, folder: Path, told: str) -> None:
    client.orders()  # what the killed one has sent is done before this is answered
    made = len(books.orders)
    assert made <= 1, told
    book = Book(folder)
    for lease in book.leases():
        if lease.state == "ready":
            book.change(lease, state="returning", why="the test is over")
    reconcile(client, book)
    assert [order for order in books.orders.values() if order["ended"] is None] == [], told
    assert len(books.orders) == made, told
    assert books.asked.count("create_order") <= 1, told
    for lease in book.leases():  # an order may still come for it: it waits, and is not sent again
        assert (lease.order, made) == (0, 0), told


@pytest.mark.parametrize("what", ["take", "watch", "close"])
@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)], ids=["each third call", "each call"])
def test_killed_before_any_call_nothing_is_ordered_twice_or_kept(what: str, every: int, tmp_path: Path) -> None:
    assert killed_everywhere(what, tmp_path, every, first=1 + every // 2) > 15
