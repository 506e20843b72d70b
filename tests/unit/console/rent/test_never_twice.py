"""The promises about money, tried with everything that goes wrong between a renter and a market: never two orders for
one wish, always given back, never beyond what was agreed to."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from console.rent import lease as leases
from console.rent import watcher
from console.rent.compare_and_give_back import want_back
from console.rent.lease import Book
from console.rent.order import take
from lab.market import FAULTS
from tests.support.rented import Killed, World, bound_usd
from train.errors import BadInput

HOURS = 1.0
ASKS_S = 80.0
"""The longest that a look at the market takes before it fails."""
FAILED_S = 20.0
"""What one call without an answer delays."""
CALLS_S = 3.0
"""Of a look that succeeds."""


def story(seed: int, place: Path) -> tuple[World, str]:
    """One evening: what is done, and what goes wrong, by chance."""
    chance = random.Random(seed)
    random.seed(seed)
    world = World(place=place)
    told = [f"seed {seed}"]
    for verb in ("create_order", "my_orders", "cancel_order", "wallets"):
        if chance.random() < 0.35:
            faults = [chance.choice([*FAULTS, ""]) for _ in range(chance.randint(1, 6))]
            world.books.faults[verb] = faults
            told.append(f"{verb}: {faults}")
    if chance.random() < 0.3:
        world.books.shows_marks = False
        told.append("marks are not shown")
    if chance.random() < 0.3:
        world.kill_at_call = chance.choice([-1, 1]) * chance.randint(1, 8)
        told.append(f"killed at call {world.kill_at_call}")
    if chance.random() < 0.3:
        start = chance.uniform(0, HOURS * 3600)
        world.down.append((start, start + chance.uniform(1, 1200)))
        told.append(f"down: {world.down}")
    jump = chance.choice([0.0, 0.0, -86400.0, -1800.0, 1800.0, 86400.0])
    if jump:
        world.later.append((chance.uniform(0, 3000), lambda: setattr(world, "wall_off_s", jump)))
        told.append(f"clock jumps {jump}")
    if chance.random() < 0.15:
        world.later.append((chance.uniform(0, 3000), world.outbid))
        told.append("outbid")
    if chance.random() < 0.15 and world.books.shows_marks:
        world.later.append((chance.uniform(0, 3000), world.lose_leases))
        told.append("leases lost")
    return world, "; ".join(told)


def evening(world: World) -> None:
    """A rent, whatever comes of it; then its watcher, which lives on; then a later command, as it would come."""
    with suppress(BadInput, Killed):
        world.has_rented(HOURS)
    world.kill_at_call = 0
    for lease in world.book.leases():
        world.watches(lease)


@pytest.mark.parametrize(
    "seeds", [range(0, 150), pytest.param(range(150, 12_150), marks=pytest.mark.long)], ids=["some", "many"]
)
def test_whatever_goes_wrong_one_wish_is_one_order_and_is_given_back(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        world, told = story(seed, tmp_path / str(seed))
        failing = sum(len(world.books.faults.get(verb, [])) for verb in ("my_orders", "cancel_order"))
        late_s = sum(end - start for start, end in world.down) + failing * FAILED_S
        late_s += ASKS_S if world.down else 0
        evening(world)
        assert len(world.books.orders) <= 1, told
        assert world.most_at_once <= 1, told
        assert world.living() == [], told
        assert world.usd() <= bound_usd(HOURS, late_s + watcher.POLL_S + CALLS_S), told


def test_an_undisturbed_evening_costs_its_hours_and_one_poll_at_most(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    evening(world)
    assert len(world.books.orders) == 1
    assert bound_usd(HOURS, -1) <= world.usd() <= bound_usd(HOURS, watcher.POLL_S)
    (receipt,) = [world.book.receipt(path.stem) for path in world.book.receipts.glob("*.json")]
    assert receipt
    assert receipt["usd_at_most"] == pytest.approx(world.usd(), abs=0.001)


@pytest.mark.parametrize(
    ("fault", "shows_marks"),
    [("lost", True), ("500-done", True), ("garbled", True), ("late", True), ("lost", False), ("late", False)],
)
def test_an_order_without_an_answer_is_found_and_not_sent_again(fault: str, shows_marks: bool, tmp_path: Path) -> None:
    """Without marks the new order of the same machine is ours."""
    world = World(place=tmp_path)
    world.books.faults["create_order"], world.books.shows_marks = [fault], shows_marks
    lease = world.rents()
    assert world.books.asked.count("create_order") == 1
    assert (lease.order, lease.host, lease.port) == (1000, "127.0.0.1", 2222)


@pytest.mark.parametrize(("fault", "says"), [("taken", "server-already-rented"), ("busy", "asked too often")])
def test_what_the_market_declines_is_not_sent_again_and_leaves_nothing(fault: str, says: str, tmp_path: Path) -> None:
    world = World(place=tmp_path)
    world.books.faults["create_order"] = [fault]
    with pytest.raises(BadInput, match=says):
        world.rents()
    assert (world.books.orders, world.book.leases()) == ({}, [])
    assert world.books.asked.count("create_order") == 1


def test_given_back_within_a_minute_once_the_market_answers_again(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    world.down = [(HOURS * 3600 - 60, HOURS * 3600 + 1800)]
    evening(world)
    (order,) = world.books.orders.values()
    assert 0 < order["ended"] - world.down[0][1] <= 60


def test_a_command_that_died_before_the_machine_was_proven_leaves_it_to_nobody(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    with world.book.alone():
        take(world.shop(), world.terms())
        assert world.reconciles() == []
    lines = world.reconciles()
    assert "ended before it was proven" in lines[0]
    assert (world.living(), world.book.leases()) == ([], [])


def test_orders_of_a_lost_folder_go_back_and_those_of_others_stay(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    world.has_rented()
    world.market_makes("motley-otherone-abc", number=8)
    world.lose_leases()
    assert world.reconciles() == ["order 1000 is given back: no lease here knows it"]
    assert [order["id"] for order in world.living()] == [1001]


def test_what_is_wanted_back_stays_wanted_back_whatever_is_written_meanwhile(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    lease = world.rents()
    want_back(world.book, lease, "asked for")
    assert world.book.change(lease, state="ready").state == "returning"
    assert "asked for" in world.reconciles()[0]


def test_after_a_restart_with_a_clock_that_went_back_all_time_is_over(tmp_path: Path) -> None:
    world = World(place=tmp_path)
    world.has_rented(10)
    world.boots, world.wall_off_s = 2, -86400
    assert "its time is over" in world.reconciles()[0]


def test_two_machines_of_one_image_leave_each_others_orders_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for machine in ("one", "two", "one"):
        monkeypatch.setenv("MOTLEY_RENTED", str(tmp_path / machine / "rented"))
        names.append(leases.owner())
    assert names[0] == names[2] != names[1]
    (tmp_path / "one/rented.owner").write_text("")
    monkeypatch.setenv("MOTLEY_RENTED", str(tmp_path / "one/rented"))
    with pytest.raises(BadInput, match="damaged"):
        leases.owner()


@pytest.mark.parametrize(
    ("name", "value"), [("hours", float("nan")), ("hours", "2"), ("hours", 1e308), ("usd_h", None), ("born", {})]
)
def test_a_lease_whose_numbers_are_none_is_none_and_its_machine_goes_back(
    name: str, value: object, tmp_path: Path
) -> None:
    """As after an edit by hand, to keep it longer."""
    world = World(place=tmp_path)
    lease = world.has_rented()
    file = tmp_path / f"{lease.mark}.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
    world.later.append((4 * 3600, lambda: pytest.fail("it is kept")))
    world.watches(lease)
    assert (world.living(), world.book.leases()) == ([], [])


@pytest.mark.parametrize("text", ["5", "{}", '{"mark": "a"}'])
def test_a_bill_that_cannot_be_read_is_not_shown(text: str, tmp_path: Path) -> None:
    book = Book(tmp_path)
    book.receipts.mkdir()
    (book.receipts / "motley-a.json").write_text(text)
    assert book.receipt("motley-a") is None
