"""One wish, one order: the lease is on the disk before it is sent, it is sent once, and without an answer it is
looked for by its mark."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from console.rent import lease as leases
from console.rent.compare_and_give_back import Clock, reconcile, want_back
from console.rent.lease import HELD, ORDERING, Book, Lease, new_mark
from console.rent.market import Declined, Market, Offer, Request, Unanswered
from console.rent.which_to_give_back import SETTLE_S
from train.errors import BadInput

LOOK_S = 60.0
"""How long an order without an answer is looked for."""
APPEAR_S = 300.0
"""How long a machine may take to be there."""
EVERY_S = 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms:
    """What a person has agreed to."""

    offer: Offer
    currency: str
    hours: float
    public_key: str
    inventory: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shop:
    """What an order needs: where it is ordered and written down, and who looks after it."""

    market: Market
    book: Book
    watch: Callable[[Lease], None]
    clock: Clock = leases.now
    sleep: Callable[[float], None] = time.sleep
    say: Callable[[str], None] = lambda line: None


def take(shop: Shop, terms: Terms) -> Lease:
    """The lease of a machine whose address and port are known. BadInput: nothing is rented.

    Inside of `book.alone()`: as long as that is held, a machine that is not proven yet may stay.
    """
    if living := shop.book.leases():
        raise BadInput(why_not_now(living[0]))
    lease = _begin(shop, terms)
    request = Request(
        mark=lease.mark,
        server=terms.offer.server,
        currency=terms.currency,
        usd_h=terms.offer.usd_h[terms.currency],
        public_key=terms.public_key,
    )
    try:
        number = shop.market.order(request)
    except Declined as no:
        shop.book.close(lease, f"declined: {no}", shop.clock(), {}, sure=True)
        raise BadInput(f"{shop.market.name} declines: {no}\nfix: try again; it takes the next best offer") from None
    except Unanswered as silence:
        shop.say(f"no answer to the order ({silence}): it is not sent again, but looked for by its mark")
        return _appear(shop, _look_for(shop, lease, str(silence)))
    return _appear(shop, shop.book.change(lease, state=HELD, order=number))


def why_not_now(lease: Lease) -> str:
    if lease.order:
        return f"{lease.name} is rented already: one at a time\nfix: ./motley give-back, or use it"
    settled = time.strftime("%H:%M", time.localtime(lease.born.wall + SETTLE_S + 60))
    return f"an order has no answer yet: the market may still make it\nfix: try again at {settled}; ./motley rented"


def _begin(shop: Shop, terms: Terms) -> Lease:
    try:
        before, balance = shop.market.orders(), shop.market.balance()
    except (Unanswered, Declined) as why:
        raise BadInput(
            f"{shop.market.name} does not answer: {why}\nfix: nothing was ordered; try again later"
        ) from None
    lease = Lease(
        mark=new_mark(),
        market=shop.market.name,
        state=ORDERING,
        server=terms.offer.server,
        gpu=terms.offer.gpu,
        usd_h=round(terms.offer.usd_h[terms.currency] * (1 + shop.market.fee), 6),
        currency=terms.currency,
        hours=terms.hours,
        born=shop.clock(),
        before=tuple(order.number for order in before),
        balance=balance,
        inventory=terms.inventory,
    )
    shop.book.write(lease)
    try:
        shop.watch(lease)
    except BaseException:
        shop.book.close(lease, "nothing could look after it", shop.clock(), {}, sure=True)
        raise
    return lease


def _look_for(shop: Shop, lease: Lease, silence: str) -> Lease:
    """An order that was sent and not answered."""
    if found := _until(shop, lease, LOOK_S, lambda current: bool(current.order)):
        return found
    want_back(shop.book, lease, f"no answer to the order ({silence})")
    raise BadInput(
        f"{shop.market.name} gave no answer to the order, and it is not listed\n"
        "if the market makes it after all, it is given back at once; it is not ordered again\n"
        "fix: ./motley rented shows whether it was made; then try again"
    )


def _appear(shop: Shop, lease: Lease) -> Lease:
    if found := _until(shop, lease, APPEAR_S, lambda current: bool(current.host and current.port)):
        return found
    want_back(shop.book, lease, "it did not come up")
    raise BadInput(
        f"order {lease.order} did not become a machine within {APPEAR_S:.0f} s: it is given back\nfix: try again"
    )


def _until(shop: Shop, lease: Lease, limit_s: float, good: Callable[[Lease], bool]) -> Lease | None:
    began = shop.clock()
    while True:
        with contextlib.suppress(Unanswered, Declined):
            reconcile(shop.market, shop.book, shop.clock)
        current = shop.book.read(lease.mark)
        if current is None or current.state == leases.RETURNING:
            raise BadInput(f"{lease.name} was given back meanwhile: nothing is rented")
        if good(current):
            return current
        if leases.between(began, shop.clock()) > limit_s:
            return None
        shop.sleep(EVERY_S)
