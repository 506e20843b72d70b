"""Compares what the market bills with the leases here, and gives back what is due; every command may call it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from console.rent import lease as leases
from console.rent import timer
from console.rent.lease import HELD, ORDERING, RETURNING, Book, Lease, Moment, owner
from console.rent.market import Declined, Market, Order, Unanswered
from console.rent.which_to_give_back import Action, Close, Found, GiveBack, decide

Clock = Callable[[], Moment]


def reconcile(
    market: Market, book: Book, clock: Clock = leases.now, *, known: Sequence[Lease] = (), only: str = ""
) -> list[str]:
    """A line for each thing that was done. `known`: leases whose files are gone, or could not be written when they were
    wanted back. `only`: this mark, and no stranger's.

    Unanswered: nothing is known, and what was given back is looked at again the next time.
    """
    lines: list[str] = []
    ended: set[int] = set()
    for _ in range(2):  # what was given back is gone the second time
        orders = market.orders()
        here = [lease for lease in _newest(book, known) if lease.mark == only or not only]
        actions = decide(orders, here, clock(), only or owner(), renting=book.renting())
        lines += [line for action in actions if (line := _do(market, book, action, clock, ended))]
        if not any(isinstance(action, GiveBack) for action in actions):
            break
    return lines


def _newest(book: Book, known: Sequence[Lease]) -> list[Lease]:
    here = {lease.mark: lease for lease in [*known, *book.leases()]}
    for lease in known:
        written = here[lease.mark]
        if lease.state == RETURNING and written.state != RETURNING:
            here[lease.mark] = replace(written, state=RETURNING, why=lease.why)
    return list(here.values())


def _do(market: Market, book: Book, action: Action, clock: Clock, ended: set[int]) -> str:
    """`ended`: the orders of which the market has said so."""
    match action:
        case GiveBack(order, why):
            _cancel(market, order, ended)
            return f"order {order} is given back: {why}"
        case Found(lease, order):
            return _found(book, lease, order)
        case Close(lease, why):
            if lease.order:  # a list that forgot it would be no proof
                _cancel(market, lease.order, ended)
            book.close(lease, why, clock(), balance(market), sure=lease.order in ended)
            timer.forget(book, lease.mark)
            return f"{lease.name} is given back and paid for: {why}" if lease.order else ""


def _cancel(market: Market, order: int, ended: set[int]) -> None:
    with contextlib.suppress(Declined):  # it is gone already, or so it says
        market.cancel(order)
        ended.add(order)


def _found(book: Book, lease: Lease, order: Order) -> str:
    state = HELD if lease.state == ORDERING else lease.state
    port = order.ports.get(22, 0)
    try:
        book.change(lease, order=order.number, state=state, why=lease.why, host=order.host, port=port)
    except OSError as full:  # it is given back all the same
        return f"order {order.number} was made and cannot be written down ({full})"
    return f"order {order.number} was made; it is not ordered again" if not lease.order and not lease.why else ""


def want_back(book: Book, lease: Lease, why: str) -> Lease:
    try:
        return book.change(lease, state=RETURNING, why=why)
    except OSError:  # a full disk does not keep it
        return replace(lease, state=RETURNING, why=why)


def balance(market: Market) -> dict[str, float]:
    """The account's balance, for the bill alone: nothing waits for it; empty where the market does not answer."""
    try:
        return market.balance()
    except (Unanswered, Declined):
        return {}
