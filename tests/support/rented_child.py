"""A renter that is ended by SIGKILL before its Nth call to the system that touches a lease or the market.

python -m tests.support.rented_child take|watch|close URL FOLDER N          N = 0: it counts them, and lives
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from console.rent.clore import Clore, offer_of
from console.rent.compare_and_give_back import reconcile, want_back
from console.rent.lease import Book
from console.rent.order import Shop, Terms, take
from console.rent.watcher import watch
from lab.market import KEY, server

CALLS = [
    *((os, name) for name in ("open", "write", "fsync", "close", "replace", "unlink", "makedirs")),
    (fcntl, "flock"),
    *((socket.socket, name) for name in ("connect", "sendall", "recv_into")),
]


class Counter:
    def __init__(self, kill_at: int) -> None:
        self.kill_at, self.count = kill_at, 0

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*words: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*words, **named)

        return counted


def main(what: str, url: str, folder: Path, kill_at: int) -> None:
    market = Clore(key=KEY, url=url, pace_s=0.0, timeout_s=3.0)
    book = Book(folder)
    counter = Counter(kill_at)
    for place, name in CALLS:
        setattr(place, name, counter.before(getattr(place, name)))
    if what == "take":
        shop = Shop(market=market, book=book, watch=lambda lease: None)
        offer = offer_of(server(6))
        with book.alone():
            lease = take(shop, Terms(offer=offer, currency="USD-Blockchain", hours=1, public_key="ssh-ed25519 AAAA"))
            book.change(lease, state="ready")
    elif what == "watch":
        (lease,) = book.leases()
        watch(market, book, lease, lambda _: "the run is done")
    else:
        (lease,) = book.leases()
        want_back(book, lease, "asked for")
        reconcile(market, book)
    print(counter.count)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4]))
