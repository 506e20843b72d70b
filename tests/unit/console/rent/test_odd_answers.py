"""Whatever the market lists and the rented machine says: hours × price, and one poll, is the most that is billed."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from console import rented_machine
from console.rent import give_back_from_home, give_back_while_asleep, watcher
from console.rent import lease as leases
from console.rent.call_within import within
from console.rent.clore import Clore, offer_of, order_of
from console.rent.lease import Lease
from console.rent.market import Unanswered
from lab.market import KEY
from tests.support import stand_ins
from tests.support.rented import World, bound_usd
from train.errors import BadInput

HOURS, LONG = 0.05, 1.0
ANY = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(),
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(some.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
FIELDS = ("id", "renting_server", "env", "pub_cluster", "tcp_ports")
ORDER = ANY | some.dictionaries(some.sampled_from(FIELDS), ANY)
SERVER = some.dictionaries(
    some.sampled_from(["id", "specs", "price", "gpu_array", "allowed_coins", "mrl", "cuda_version", "rented"]), ANY
)
STATUS = ANY | some.fixed_dictionaries({"on": ANY, "run": ANY}, optional={"checkpoint": ANY, "events": ANY})
MANY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
SOME = settings(MANY, max_examples=15)
numbers = itertools.count()


def rented(place: Path) -> tuple[World, Lease]:
    world = World(place=place / str(next(numbers)))
    return world, world.has_rented(HOURS)


def cost_no_more(world: World, late_s: float = watcher.POLL_S + 5) -> None:
    assert world.living() == []
    assert world.usd() <= bound_usd(HOURS, late_s)


@MANY
@given(orders=some.lists(ORDER, max_size=3))
def test_odd_orders_of_the_account_keep_no_machine(orders: list[Any], tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.also_listed = orders
    world.watches(lease)
    cost_no_more(world)


@SOME
@given(answer=ANY)
def test_a_list_that_cannot_be_read_keeps_no_machine(answer: Any, tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.lists = lambda listed: listed if world.passed_s > HOURS * 3600 + 600 else answer
    world.watches(lease)
    cost_no_more(world, late_s=watcher.POLL_S + 90)  # each look asks four times


@SOME
@given(status=STATUS)
def test_whatever_the_machine_says_it_goes_back_in_time(
    status: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, lease = rented(tmp_path)
    monkeypatch.setenv("MOTLEY_RENTED", str(world.place))
    monkeypatch.setattr(rented_machine, "node_of", lambda _: SimpleNamespace(status=lambda: status))
    monkeypatch.setattr(rented_machine, "now", world.clock)
    monkeypatch.setattr(rented_machine, "check", lambda _: None)
    monkeypatch.setattr(rented_machine, "fetch", lambda *_: 1)
    world.watches(lease, rented_machine.look)
    cost_no_more(world)


@pytest.mark.parametrize("error", [RecursionError, TypeError, OSError, json.JSONDecodeError("no", "", 0), MemoryError])
def test_a_look_that_breaks_is_said_and_ends_nothing(error: Exception, tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    said: list[str] = []

    world.watches(lease, Mock(side_effect=error), said.append)
    cost_no_more(world)
    assert any("cannot be understood" in line for line in said)


@pytest.mark.parametrize(
    "error", [OSError(28, "No space left on device"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no")]
)
def test_a_line_that_cannot_be_written_ends_nothing(error: Exception, tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.watches(lease, say=Mock(side_effect=error))
    cost_no_more(world)


def test_a_disk_that_is_full_from_the_order_on_keeps_no_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(place=tmp_path)
    disk = Disk(monkeypatch)
    world.books.on_order = lambda _: disk.fills()
    with pytest.raises(OSError, match="No space"):
        world.rents(LONG)
    (lease,) = world.book.leases()
    world.later.append((3 * 3600.0, disk.has_room))
    world.watches(lease)
    (made,) = world.books.orders.values()
    assert made["ended"] - made["born"] <= watcher.POLL_S + 5
    assert world.book.leases() == []


def test_what_is_wanted_back_on_a_full_disk_goes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, lease = rented(tmp_path)
    disk = Disk(monkeypatch)
    disk.fills()
    world.later.append((600.0, disk.has_room))
    world.watches(lease, lambda _: "its run has ended")
    (made,) = world.books.orders.values()
    assert made["ended"] - made["born"] <= 5


def test_a_write_that_fails_leaves_no_file_open_and_the_lease_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watcher tries every 20 s: without a free file number it could give nothing back."""
    leases._write(tmp_path, "lease.json", {"order": 7})
    write, open_files = os.write, len(list(Path("/proc/self/fd").iterdir()))
    full = Mock(side_effect=OSError(28, "No space left on device"))
    for fails in (full, lambda file, content: write(file, content[:5])):
        monkeypatch.setattr(os, "write", fails)
        with pytest.raises(OSError, match="No space"):
            leases._write(tmp_path, "lease.json", {"order": 8})
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    assert json.loads((tmp_path / "lease.json").read_text()) == {"order": 7}


def test_a_second_watcher_leaves_the_first_ones_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, lease = rented(tmp_path)
    monkeypatch.setenv("MOTLEY_RENTED", str(world.place))
    with world.book.part(lease, "watched") as first:
        assert first and watcher.main([lease.mark]) == 0
        with world.book.part(lease, "watched") as second:
            assert not second


class Disk:
    """Of the leases: full, and free again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.write = monkeypatch, leases._write

    def fills(self) -> None:
        self.patch.setattr(leases, "_write", Mock(side_effect=OSError(28, "No space left on device")))

    def has_room(self) -> None:
        self.patch.setattr(leases, "_write", self.write)


def test_a_look_that_has_no_end_is_given_up_at_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher, "within", within)
    world, begun = World(place=tmp_path), []

    def look(lease: Lease) -> str:
        begun.append(lease)
        return str(Event().wait())

    world.watches(world.has_rented(0.0005), look)
    assert begun
    cost_no_more(world)


def unanswered(place: Path, *, shows_marks: bool) -> tuple[World, Lease]:
    """An order that the market has not made yet when nobody waits for it any more."""
    world = World(place=place)
    world.books.faults["create_order"], world.books.shows_marks = ["500"], shows_marks
    with pytest.raises(BadInput, match="gave no answer"):
        world.rents(LONG)
    (lease,) = world.book.leases()
    return world, lease


@pytest.mark.parametrize(
    ("late_s", "within_s"), [(361.0, watcher.POLL_S), (700.0, watcher.SELDOM_S), (3000.0, watcher.SELDOM_S)]
)
@pytest.mark.parametrize("shows_marks", [True, False])
def test_an_order_that_is_made_late_goes_back_soon(
    late_s: float, within_s: float, shows_marks: bool, tmp_path: Path
) -> None:
    world, lease = unanswered(tmp_path, shows_marks=shows_marks)
    with pytest.raises(BadInput, match="may still make it"):
        world.rents(LONG)
    world.later.append((late_s, lambda: world.market_makes(lease.mark)))
    world.watches(lease)
    (made,) = world.books.orders.values()
    assert made["ended"] - made["born"] <= within_s + 5
    assert world.book.leases() == [], "meanwhile another may be rented"


def test_who_looks_for_a_late_order_leaves_the_next_one_alone(tmp_path: Path) -> None:
    world, lost = unanswered(tmp_path, shows_marks=False)

    def again() -> None:
        world.reconciles()
        world.has_rented(LONG)

    world.later.append((800.0, again))
    world.watches(lost)
    assert len(world.living()) == 1


@pytest.mark.parametrize("lies", [(300.0, 700.0), (LONG * 3600 - 30, LONG * 3600 + 1200)], ids=["amid", "at its end"])
def test_a_market_that_denies_an_order_and_ends_none_gets_it_back_once_it_shows_it(
    lies: tuple[float, float], tmp_path: Path
) -> None:
    world = World(place=tmp_path)
    lease = world.has_rented(LONG)
    world.denied = world.declined = [lies]
    world.watches(lease)
    (made,) = world.books.orders.values()
    assert made["ended"] <= lies[1] + watcher.SELDOM_S + 5


def test_who_was_told_that_it_has_ended_looks_no_longer(tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.watches(lease)
    assert world.passed_s <= HOURS * 3600 + watcher.POLL_S


@MANY
@given(server=SERVER, order=some.dictionaries(some.sampled_from(FIELDS), ANY))
def test_an_odd_offer_or_order_is_read_as_far_as_it_goes(server: dict[str, Any], order: dict[str, Any]) -> None:
    offer_of(server)
    order_of(order)


def test_odd_ports_and_numbers_of_ours_are_read_as_far_as_they_go() -> None:
    order = order_of({"id": "7", "pub_cluster": {"a": 1}, "tcp_ports": ["8888-8890:1", 5, "22:40122", None]})
    assert (order.number, order.host, order.ports) == (7, "", {22: 40122})


@SOME
@given(orders=some.lists(ORDER, max_size=3))
def test_a_keeper_gives_back_among_odd_orders(orders: list[Any], tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.also_listed = orders
    kept(world, lease)
    assert world.passed_s < HOURS * 3600 + 60, "the market has ended it, and lists it no longer"


@pytest.mark.parametrize("answer", [None, {"code": 0, "orders": 5}, [], {"code": 0, "orders": []}])
def test_a_keeper_gives_back_where_the_list_cannot_be_read_or_leaves_it_out(answer: Any, tmp_path: Path) -> None:
    world, lease = rented(tmp_path)
    world.lists = lambda listed: answer if world.living() else listed
    kept(world, lease)


def kept(world: World, lease: Lease) -> None:
    end = HOURS * 3600
    facts = give_back_from_home.facts(world.market, lease, end)
    give_back_while_asleep.keep(world.market, facts, left=lambda _: end - world.passed_s, sleep=world.sleep)
    assert min(order["ended"] for order in world.books.orders.values()) >= end, "not before its time"
    cost_no_more(world, late_s=120)


@pytest.fixture
def dripping() -> Iterator[str]:
    over = Event()

    class Drips(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "500")
            self.end_headers()
            with suppress(OSError):
                while not over.wait(0.1):
                    self.wfile.write(b" ")
                    self.wfile.flush()

        def log_message(self, *_: Any) -> None: ...

    with stand_ins.served(Drips) as port:
        yield f"http://127.0.0.1:{port}/v1"
        over.set()


def test_an_answer_that_drips_has_one_deadline(dripping: str) -> None:
    market = Clore(key=KEY, url=dripping, pace_s=0.0, timeout_s=0.5)
    began = time.monotonic()
    with pytest.raises(Unanswered):
        market._ask("my_orders", None)
    assert time.monotonic() - began < 5
