"""How the benchmarks measure rows per second, on runs that are played instead of trained."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import speed
from tests.bench.turns import in_turns, turn
from tests.support import torchrun


def step(step_s: float, **rows: int) -> dict[str, Any]:
    nodes = {name: {"rows": count, "compute_s": step_s * bool(count)} for name, count in rows.items()}
    return {"step_s": step_s, "sync_s": 0.0, "nodes": nodes}


@dataclass
class Played:
    """Each wait lets so many more steps happen than were asked for: what is read later is longer than the window."""

    hosts: list[Any]
    script: list[dict[str, Any]]
    late: int = 2
    run: str = "played"
    happened: int = 0
    stopped: bool = False
    sent: list[str] = field(default_factory=list)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return self.script[: self.happened] if kind == "step" else []

    def wait_for_step(self, wanted: int) -> int:
        self.happened = max(self.happened, wanted + self.late)
        return self.happened

    def send(self, number: signal.Signals) -> None:
        self.sent.append(number.name.removeprefix("SIG").lower())

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def no_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "quotas", lambda *_, **__: None)


def hosts(*names: str) -> list[Any]:
    return [SimpleNamespace(name=name) for name in names]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[Played]:
    """a and b share 8 rows as 6 + 2 in a second; alone they take half a second for what they had."""
    runs: list[Played] = []

    def train(_: str, some: list[Any], *, rows_per_step: int, **__: Any) -> Played:
        alone = [step(0.5, **{some[0].name: rows_per_step})]
        run = Played(some, ([step(1, a=rows_per_step - 2, b=2)] if len(some) > 1 else alone) * 90)
        runs.append(run)
        return run

    monkeypatch.setattr(torchrun, "train", train)
    return runs


def test_machines_alone_are_measured_with_their_own_rows_and_in_turns_with_all_together(started: list[Played]) -> None:
    found = in_turns(hosts("a", "b"), 8, settle=6, count=4, turns=2)
    for each in found:
        assert (each.together.rows_per_s, [own.rows_per_s for own in each.alone]) == (8, [12, 4])
        assert (each.of_the_sum, each.whole_rows, each.own_rates) == (0.5, 1, [0.5, 0.5])
    assert [run.sent for run in started] == [["stop", *["cont", "stop"] * 2]] * 3
    assert all(run.stopped for run in started)


def test_a_machine_that_had_no_rows_is_measured_with_one(started: list[Played]) -> None:
    """A run of 0 rows a step does not exist, and what the machine could do belongs to the sum."""
    [found] = in_turns(hosts("a", "b"), 2, settle=6, count=4, turns=1)
    assert found.together.rows == [0, 2]
    assert [own.rows_per_s for own in found.alone] == [2, 4]
    assert found.whole_rows == pytest.approx(2 / 0.5 / 6)


def test_a_step_broken_off_by_a_stop_does_not_count() -> None:
    run = Played(hosts("a"), [step(1, a=4)] * 5 + [step(60, a=4)] + [step(1, a=4)] * 9, happened=5)
    [window] = turn([run], [4], 3)  # type: ignore[list-item]
    assert window.rows_per_s == 4


def test_rows_are_those_of_the_window_and_not_of_a_step_after_it() -> None:
    window = [step(1, a=6, b=2)] * 3 + [step(1, a=7, b=1)]  # one look at a slow machine among them
    run = Played(hosts("b", "a"), [step(9, a=4, b=4)] * 7 + window + [step(9, a=1, b=7)] * 9)
    found = speed.window(run, rows=8, skip=3, count=4)  # the start ends at its fourth step
    assert (found.rows_per_s, found.rows) == (8.0, [2, 6])
    assert run.stopped


def test_a_step_is_the_slowest_the_latest_the_exchange_and_the_rest():
    """Each of two computes for 1 s on average, and in each step one of them for 1.2 s."""
    nodes = [{"a": {"compute_s": a}, "b": {"compute_s": 2 - a}} for a in (0.8, 1.2)]
    steps = [{"step_s": 1.5, "sync_s": 0.1, "nodes": each} for each in nodes]
    spent = {speed.SLOWEST: 1.0, speed.LATEST: 0.2, speed.EXCHANGE: 0.1, speed.REST: 0.2}
    assert speed.where_seconds_go(steps) == pytest.approx(spent)
    assert speed.where_seconds_go([{"step_s": 1.5}]) == {}
