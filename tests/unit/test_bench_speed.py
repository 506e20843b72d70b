"""How the benchmarks measure rows per second, on runs that are played instead of trained."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.bench import speed
from tests.support import torchrun


def step(step_s: float, **rows: int) -> dict[str, Any]:
    return {"step_s": step_s, "nodes": {name: {"rows": count} for name, count in rows.items()}}


@dataclass
class Played:
    """Each wait lets so many more steps happen than were asked for: what is read later is longer than the window."""

    hosts: list[Any]
    script: list[dict[str, Any]]
    late: int = 2
    run: str = "played"
    happened: int = 0
    stopped: bool = False
    asked: list[int] = field(default_factory=list)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return self.script[: self.happened] if kind == "step" else []

    def wait_for_step(self, wanted: int) -> int:
        self.asked.append(wanted)
        self.happened = max(self.happened, wanted + self.late)
        return self.happened

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture(autouse=True)
def no_quotas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "quotas", lambda *_, **__: None)


def hosts(*names: str) -> list[Any]:
    return [SimpleNamespace(name=name) for name in names]


def test_machines_alone_at_the_same_time_are_measured_each_with_its_own_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, tuple[int, Played]] = {}

    def train(_: str, some: list[Any], *, rows_per_step: int, **__: Any) -> Played:
        run = Played(some, [step(0.5, **{some[0].name: rows_per_step})] * 50)
        started[some[0].name] = (rows_per_step, run)
        return run

    monkeypatch.setattr(torchrun, "train", train)
    assert speed.at_once(hosts("a", "b"), [14, 7], 4) == [28.0, 14.0]
    assert [rows for rows, _ in started.values()] == [14, 7]
    assert all(run.stopped for _, run in started.values())


def test_a_machine_that_had_no_rows_is_measured_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 0 rows a step does not exist, and what the machine could do belongs to the sum."""
    asked = []

    def train(_: str, some: list[Any], *, rows_per_step: int, **__: Any) -> Played:
        asked.append(rows_per_step)
        return Played(some, [step(0.5, a=rows_per_step)] * 50)

    monkeypatch.setattr(torchrun, "train", train)
    assert speed.at_once(hosts("a", "b"), [8, 0], 4) == [16.0, 2.0]
    assert asked == [8, 1]


def test_rows_are_those_of_the_window_and_not_of_a_step_after_it() -> None:
    window = [step(1, a=6, b=2)] * 3 + [step(1, a=7, b=1)]  # one look at a slow machine among them
    run = Played(hosts("b", "a"), [step(9, a=4, b=4)] * 7 + window + [step(9, a=1, b=7)] * 9)
    found = speed.window(run, rows=8, skip=3, count=4)  # the start ends at its fourth step
    assert (found.rows_per_s, found.rows) == (8.0, [2, 6])
    assert run.stopped
