"""Looks after one lease until it has ended: a process of its own, which outlives the command that rented.

python -m console.rent.watcher MARK          the key of the market comes in on standard input, and is on no disk
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from console.rent import lease as leases
from console.rent.call_within import within
from console.rent.compare_and_give_back import Clock, reconcile, want_back
from console.rent.lease import RETURNING, Book, Lease
from console.rent.market import Market
from console.rent.shop import market
from console.rent.which_to_give_back import lease_of

POLL_S, SELDOM_S = 20.0, 60.0
DOUBT_S = 3600.0
"""How long an order without a proven end is looked for at least."""
ROOT = Path(__file__).parents[2]
Look = Callable[[Lease], str]
"""Whether the machine is done: why it goes back before its time, or nothing."""


def start(lease: Lease, key: str, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "watcher.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "console.rent.watcher", lease.mark],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdin
    process.stdin.write(key.encode())
    process.stdin.close()


def watch(
    market: Market,
    book: Book,
    lease: Lease,
    look: Look,
    *,
    clock: Clock = leases.now,
    sleep: Callable[[float], None] = time.sleep,
    say: Callable[[str], None] = print,
) -> None:
    """Until its receipt is there. A file that is gone without one was lost: its order goes back, as it has no lease.

    Market and machine are other people's: whatever they answer, and whatever that breaks here, it is given back.
    """

    def tell(line: str) -> None:
        with contextlib.suppress(Exception):  # the disk below its log is full, or the words are no text
            say(f"{time.strftime('%F %T')}  {line}")

    if lease.state == leases.ORDERING:  # the market answers one at a time, and the order comes first
        sleep(min(POLL_S, max(0.0, lease.left_s(clock()))))
    while book.receipt(lease.mark) is None:
        current = book.read(lease.mark)
        if current is None and book.receipt(lease.mark) is None:
            current = replace(lease, state=RETURNING, why="its lease is gone from this machine")
        lease = current or lease
        try:
            left_s = lease.left_s(clock()) if lease.state == leases.READY else 0.0
            if left_s > 0 and (why := within(left_s, partial(look, lease))):  # what it sends may have no end
                lease = want_back(book, lease, why)
        except Exception as error:
            tell(f"the answer of {lease.name} cannot be understood ({error!r:.200}): trying again")
        try:
            for line in reconcile(market, book, clock, known=[lease], only=lease.mark):
                tell(line)
        except Exception as error:
            tell(f"{market.name} does not answer ({error!s:.200}): again in {POLL_S:.0f} s")
            if lease.order and (lease.left_s(clock()) <= 0 or lease.state == RETURNING):
                with contextlib.suppress(Exception):  # its list is not needed for that
                    market.cancel(lease.order)
        if book.receipt(lease.mark) is None:
            left = lease.left_s(clock())
            sleep(min(POLL_S, left) if left > 0 else POLL_S)
    look_on(market, book, lease, clock=clock, sleep=sleep, tell=tell)


def look_on(
    market: Market,
    book: Book,
    lease: Lease,
    *,
    clock: Clock,
    sleep: Callable[[float], None],
    tell: Callable[[str], None],
) -> None:
    """An order that was never answered may still be made, and one that is not listed may only be forgotten."""
    closed = clock()
    while book.in_doubt(lease.mark) and (lease.left_s(clock()) > 0 or leases.between(closed, clock()) < DOUBT_S):
        sleep(SELDOM_S)
        with contextlib.suppress(Exception):
            for order in market.orders():
                if lease_of(order, [*book.leases(), lease]) is lease:
                    tell(f"order {order.number} exists after all: it is given back")
                    market.cancel(order.number)


def main(words: list[str]) -> int:
    from console.rented_machine import look  # noqa: PLC0415  what it imports takes half a second

    book = Book(leases.folder())
    lease = book.read(words[0])
    if lease is None:
        return 0
    with book.part(lease, "watched") as ours:
        if ours:
            watch(market(sys.stdin.read().strip()), book, lease, look, say=lambda line: print(line, flush=True))
            (book.place / f"{lease.mark}.watched").unlink(missing_ok=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
