"""A week of played evenings with a market that lies: nothing of ours lives beyond its hours and the time of the lies,
and nothing of somebody else's is ended. One seed is one week."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from console.rent import give_back_from_home, give_back_while_asleep
from console.rent import lease as leases
from console.rent.compare_and_give_back import want_back
from console.rent.lease import Lease
from console.rent.order import take
from lab.market import FAULTS, mark_of, server
from tests.support.rented import Killed, World, is_ours
from train.errors import BadInput

DAY_S, HOURS, LIE_S = 86_400.0, 1.0, 1800.0
FULL_S = 4 * 3600.0
"""The longest that the disk is full, which excuses no second."""
EVENING_S = 2 * 3600.0
"""All lies of an evening are over by then, and its last commands are typed."""
NEXT_COMMAND_S = 1200.0
FAILED_S, LOOK_S = 20.0, 180.0
"""What one call without an answer delays, and a look whose every call fails."""
ODD = [None, 7, {"id": "x"}, {"renting_server": 6}, {"id": 5, "env": None}, {"id": 6, "env": {"MOTLEY_LEASE": 5}}]


class Week:
    after_s = 0.0
    """Of its hours, when it is this one's turn to give back."""

    def __init__(self, seed: int, place: Path) -> None:
        self.chance = random.Random(seed)
        random.seed(seed)
        self.world = World(place=place)
        self.full: list[tuple[float, float]] = []
        self.ends_by: dict[str, float] = {}
        self.runs = self.disturbed = False
        self.told = [f"seed {seed}"]
        for number, mark in ((90, "motley-otherone-abc"), (91, None), (92, "motley-")):
            self.stranger_rents(number, mark)

    def stranger_rents(self, number: int, mark: str | None) -> None:
        self.world.books.servers.append(server(number))
        self.world.market_makes(mark, number)

    def play(self) -> None:
        for evening in range(7):
            self.world.sleep(max(0.0, evening * DAY_S - self.world.passed_s))
            self.plan(evening)
            self.disturbed = False
            lease = self.types_rent()
            late_s = self.lies_s + LOOK_S
            self.watched(lease)
            if lease:
                over = lease.born.up + HOURS * 3600 + self.after_s + late_s
                last = evening * DAY_S + EVENING_S + LOOK_S if self.disturbed else 0.0
                self.ends_by[lease.mark] = max(over, last)
        self.world.sleep(DAY_S)

    def plan(self, evening: int) -> None:
        """What goes wrong, and what a person types meanwhile."""
        world, chance, begins = self.world, self.chance, evening * DAY_S
        self.lies_s = 0.0
        lies = {"down": [world.down], "denied": [world.denied], "declined": [world.declined]}
        for name, kinds in {**lies, "denied and declined": [world.denied, world.declined]}.items():
            if chance.random() < 0.4:
                start, lasts = chance.uniform(0, 1.2 * HOURS * 3600), chance.uniform(1, LIE_S)
                for times in kinds:
                    times.append((begins + start, begins + start + lasts))
                self.lies_s += lasts
                self.told.append(f"evening {evening}: {name} from {start:.0f} for {lasts:.0f}")
        if chance.random() < 0.3:
            self.fills(begins + chance.uniform(0, HOURS * 3600))
        from_order_on = chance.random() < 0.2
        world.books.on_order = lambda order: self.fills(order["born"]) if from_order_on and is_ours(order) else None
        world.books.faults = {}
        for verb in ("create_order", "my_orders", "cancel_order", "wallets"):
            if chance.random() < 0.3:
                world.books.faults[verb] = [chance.choice([*FAULTS, ""]) for _ in range(chance.randint(1, 6))]
        self.lies_s += FAILED_S * sum(len(world.books.faults.get(verb, [])) for verb in ("my_orders", "cancel_order"))
        self.told.append(f"evening {evening}: faults {world.books.faults}")
        world.also_listed = chance.sample(ODD, chance.randint(0, 3))
        self.people(evening, begins)

    def people(self, evening: int, begins: float) -> None:
        chance, later = self.chance, self.world.later
        things = [(0.3, self.kill), (0.2, self.kill), (0.5, self.command), (0.15, self.gives_back), (0.1, self.lose)]
        for likely, act in things:
            if chance.random() < likely:
                at = chance.uniform(0, 1.3 * HOURS * 3600)
                later.append((begins + at, act))
                self.told.append(f"evening {evening}: {act.__name__} at {at:.0f}")
        if chance.random() < 0.3:
            self.stranger_rents(100 + evening, None)
        later += [(begins + EVENING_S + 30 * number, self.command) for number in range(5)]

    def fills(self, at: float) -> None:
        lasts = self.chance.uniform(1, FULL_S)
        self.full.append((at, at + lasts))
        self.told.append(f"the disk is full from {at:.1f} for {lasts:.0f}")

    # -- what is typed, and what happens ------------------------------------------------------------------------------

    def types_rent(self) -> Lease | None:
        made: list[Lease] = []
        shop = replace(self.world.shop(), watch=made.append)
        self.command()
        with self.process(), self.world.book.alone():
            self.world.book.change(take(shop, self.world.terms(HOURS)), state=leases.READY)
        return made[0] if made else None

    def watched(self, lease: Lease | None) -> None:
        """Killed, it is started again by the next command, as long as there is a lease."""
        world, done = self.world, self.chance.choice([None, 600.0, 3000.0])

        def look(lease: Lease) -> str:
            if self.chance.random() < 0.02:
                raise ValueError("its answer is no JSON")
            return "its run has ended" if done and lease.left_s(world.clock()) < HOURS * 3600 - done else ""

        while lease:
            with self.process() as process, world.book.part(lease, "watched"):
                world.watches(lease, look)
            if not process.get("killed"):
                return
            world.sleep(self.chance.uniform(0, NEXT_COMMAND_S))
            self.command()
            lease = next(iter(world.book.leases()), None)

    @contextmanager
    def process(self) -> Iterator[dict[str, bool]]:
        how: dict[str, bool] = {}
        self.runs = True
        try:
            yield how
        except Killed:
            how["killed"] = self.disturbed = True
        except (BadInput, OSError):
            pass
        finally:
            self.runs = False

    def kill(self) -> None:
        if self.runs:
            raise Killed

    def command(self) -> None:
        """Of any kind: each looks at the market."""
        with suppress(Exception):
            self.world.reconciles()

    def gives_back(self) -> None:
        for lease in self.world.book.leases():
            want_back(self.world.book, lease, "you gave it back")
        self.command()

    def lose(self) -> None:
        self.disturbed = True
        self.world.lose_leases()

    def ours(self) -> list[dict[str, Any]]:
        return [order for order in self.world.books.orders.values() if is_ours(order)]


class WithTheLidClosed(Week):
    """Who has rented sleeps until the next evening: a machine at home gives back, whatever restarts it."""

    after_s = give_back_from_home.AFTER_S

    def people(self, evening: int, begins: float) -> None:
        if self.chance.random() < 0.3:
            self.world.later.append((begins + self.chance.uniform(0, 1.3 * HOURS * 3600), self.kill))

    def watched(self, lease: Lease | None) -> None:
        world, killed = self.world, lease is not None
        while lease and killed:
            end = lease.born.up + HOURS * 3600 + give_back_from_home.AFTER_S
            with self.process() as process:
                facts = give_back_from_home.facts(world.market, lease, end - world.passed_s)
                give_back_while_asleep.keep(world.market, facts, left=lambda _: end - world.passed_s, sleep=world.sleep)  # noqa: B023
            killed = process.get("killed", False)
            world.sleep(20.0)
        self.disturbed = False


@pytest.mark.parametrize("kind", [Week, WithTheLidClosed])
@pytest.mark.parametrize(
    "seeds", [range(6), pytest.param(range(6, 1000), marks=pytest.mark.long)], ids=["some", "many"]
)
def test_a_week_with_a_lying_market_leaves_nothing_billed(
    seeds: range, kind: type[Week], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = leases._write
    for seed in seeds:
        place = tmp_path / str(seed) / "rented"
        monkeypatch.setenv("MOTLEY_RENTED", str(place))
        week = kind(seed, place)

        def written(*what: Any, week: Week = week) -> None:
            if week.world.during(week.full):
                raise OSError(28, "No space left on device")
            write(*what)

        monkeypatch.setattr(leases, "_write", written)
        week.play()
        told = "\n".join(week.told)
        assert len({mark_of(order) for order in week.ours()}) == len(week.ours()), told
        for order in week.ours():
            assert order["ended"] is not None, f"{told}\n{order}"
            assert order["ended"] <= week.ends_by[mark_of(order)], f"{told}\n{order}"
        strangers = [order for order in week.world.books.orders.values() if not is_ours(order)]
        assert [order["ended"] for order in strangers] == [None] * len(strangers), told
