"""A market, its renter and their clocks, in one process and without waiting: time passes when somebody sleeps."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from console.rent import watcher
from console.rent.clore import Clore, offer_of
from console.rent.compare_and_give_back import reconcile
from console.rent.lease import READY, Book, Lease, Moment, owner
from console.rent.market import Unanswered
from console.rent.order import Shop, Terms, take
from console.rent.watcher import Look
from lab.market import FEE, KEY, Books, NoAnswer, mark_of, serve, server

PRICE = 0.40


class Killed(BaseException):
    """kill -9: nothing is cleaned up behind it but what the kernel does."""


@dataclass(kw_only=True)
class World:
    place: Path
    passed_s: float = 0.0
    """Since its beginning, whatever a clock shows."""
    wall_off_s: float = 0.0
    boots: int = 1
    down: list[tuple[float, float]] = field(default_factory=list)
    """When the market is not there."""
    denied: list[tuple[float, float]] = field(default_factory=list)
    """When its list leaves out the orders of this checkout."""
    declined: list[tuple[float, float]] = field(default_factory=list)
    """When it ends no order."""
    also_listed: list[Any] = field(default_factory=list)
    """Among the orders, whatever it is."""
    lists: Callable[[Any], Any] = lambda listed: listed
    """What it answers instead of its orders."""
    later: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    kill_at_call: int = 0
    calls: int = 0
    most_at_once: int = 0

    def __post_init__(self) -> None:
        self.books = Books(servers=[server(6, usd=PRICE), server(8, usd=PRICE)], clock=lambda: self.passed_s)
        self.book = Book(self.place)
        self.market = Direct(self)

    def clock(self) -> Moment:
        return Moment(wall=1e9 + self.passed_s + self.wall_off_s, up=self.passed_s, boot=f"boot-{self.boots}")

    def sleep(self, seconds: float) -> None:
        """What is to happen meanwhile happens at its time."""
        end = self.passed_s + seconds
        while due := [one for one in self.later if one[0] <= end]:
            at, act = min(due, key=lambda one: one[0])
            self.passed_s = max(self.passed_s, at)
            self.later.remove((at, act))
            act()
        self.passed_s = max(end, self.passed_s)

    def during(self, times: list[tuple[float, float]]) -> bool:
        return any(start <= self.passed_s < end for start, end in times)

    def shop(self) -> Shop:
        return Shop(market=self.market, book=self.book, watch=lambda lease: None, clock=self.clock, sleep=self.sleep)

    def rents(self, hours: float = 1.0) -> Lease:
        with self.book.alone():
            return take(self.shop(), self.terms(hours))

    def has_rented(self, hours: float = 1.0) -> Lease:
        """A machine that is proven."""
        with self.book.alone():
            return self.book.change(take(self.shop(), self.terms(hours)), state=READY)

    def watches(self, lease: Lease, look: Look = lambda _: "", say: Callable[[str], None] = lambda _: None) -> None:
        watcher.watch(self.market, self.book, lease, look, clock=self.clock, sleep=self.sleep, say=say)

    def reconciles(self) -> list[str]:
        return reconcile(self.market, self.book, self.clock)

    def market_makes(self, mark: str | None, number: int = 6) -> None:
        """An order of somebody else's, or one that this market was asked for before."""
        body = {"renting_server": number, "currency": "USD-Blockchain", "required_price": 1, "image": "", "ssh_key": ""}
        self.books._do("create_order", body | {"env": {} if mark is None else {"MOTLEY_LEASE": mark}})

    def terms(self, hours: float = 1.0) -> Terms:
        offer = offer_of(self.books.servers[0])
        return Terms(offer=offer, currency="USD-Blockchain", hours=hours, public_key="ssh-ed25519 AAAA")

    def living(self) -> list[dict[str, Any]]:
        return [order for order in self.books.orders.values() if order["ended"] is None]

    def usd(self) -> float:
        return sum(self.books.usd(order) for order in self.books.orders.values())

    def lose_leases(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def outbid(self) -> None:
        for order in self.living():
            self.books.end(order, "outbid")


class Direct(Clore):
    """Clore's own client, without the wire."""

    def __init__(self, world: World) -> None:
        super().__init__(key=KEY, pace_s=0.0, sleep=world.sleep)
        self.world = world

    def _send(self, name: str, body: Any) -> Any:
        world = self.world
        world.calls += 1
        if world.calls == world.kill_at_call:
            raise Killed
        world.sleep(0.3)
        if world.during(world.down):
            world.sleep(self.timeout_s if random.random() < 0.5 else 0.0)
            raise Unanswered("no answer")
        if name == "cancel_order" and world.during(world.declined):
            return {"code": 6, "error": "no such order"}
        try:
            answer = world.books.answer(name, body or {}, self.key)
        except (NoAnswer, ValueError):
            world.sleep(self.timeout_s)
            raise Unanswered("no answer") from None
        finally:
            world.most_at_once = max(world.most_at_once, len(world.living()))
        if world.calls == -world.kill_at_call:
            raise Killed
        if name == "my_orders" and "orders" in answer:
            denies = world.during(world.denied)
            shown = [one for one in answer["orders"] if not (denies and is_ours(one))]
            answer = answer | {"orders": [*world.also_listed, *shown]}
        return world.lists(answer) if name == "my_orders" else answer


def is_ours(order: dict[str, Any]) -> bool:
    return mark_of(order).startswith(owner())


def bound_usd(hours: float, poll_s: float) -> float:
    """hours × price × fee, and one poll."""
    return (hours * 3600 + poll_s) * PRICE * (1 + FEE) / 3600


@contextmanager
def served_market(
    kind: type[HTTPServer] = ThreadingHTTPServer, books: Books | None = None
) -> Iterator[tuple[Books, Clore]]:
    """A market over HTTP, and its client."""
    books = books or Books(servers=[server(6), server(8)])
    served = serve(books, "127.0.0.1", 0, pace_s=0.0, kind=kind)
    threading.Thread(target=served.serve_forever, args=(0.02,), daemon=True).start()
    url = f"http://127.0.0.1:{served.server_address[1]}/v1"
    try:
        yield books, Clore(key=KEY, url=url, pace_s=0.0, sleep=lambda _: None)
    finally:
        served.shutdown()
        served.server_close()


def rented_there(market: Clore, book: Book, watch: Callable[[Lease], None] = lambda _: None) -> Lease:
    """A machine that is proven, by the clocks of this one."""
    terms = Terms(offer=offer_of(server(6)), currency="USD-Blockchain", hours=1, public_key="ssh-ed25519 AAAA")
    with book.alone():
        return book.change(take(Shop(market=market, book=book, watch=watch), terms), state=READY)
