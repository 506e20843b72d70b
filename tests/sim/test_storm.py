"""A storm's diary, and that a storm is a story like any other."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.sim.faults import Fault
from tests.sim.storm_story import (
    AGREEING,
    CURVE,
    NOTICING,
    OFF,
    OUTSIDE,
    TWICE,
    Calm,
    Diary,
    Step,
    StormStory,
)

SPEEDS = {"a": 3.0, "b": 2.0, "c": 1.0}
ALL, PAIR = frozenset("abc"), frozenset("ab")


def test_all_that_could_be_computed_within_the_time_is_somewhere() -> None:
    """Step after step; at 2.5 the power of c is cut, at 5.5 it counts as lost, from 6 on the others train, at 8 it is
    back, and at 9.5 the step that runs is broken off to let it in."""
    steps = [Step(-1, 1, ALL), Step(1, 2, ALL), *(Step(at, at + 1, PAIR) for at in (6, 7, 8)), Step(10, 15, ALL)]
    away = [(-2.0, -1.0, "c"), (2.5, 8.0, "c")]
    diary = Diary(steps, published=[-3.0, 5.5, 9.5], hits=[2.5, 20.0], away=away)
    spent = diary.spent(SPEEDS, 0.0, 11.0)
    assert sum(spent.values()) == pytest.approx(11 * 6)
    assert spent[CURVE] == pytest.approx(3 * 6 + 3 * 5)
    assert spent[OFF] == pytest.approx(5.5 * 1)
    assert spent[TWICE] == pytest.approx(0.5 * 6 + 0.5 * 6)
    assert spent[NOTICING] == pytest.approx(3 * 5)
    assert spent[AGREEING] == pytest.approx(0.5 * 5 + 0.5 * 6)
    assert spent[OUTSIDE] == pytest.approx(1 * 1)


def test_what_is_lost_in_a_short_storm_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker dies while all train: the others go on without it, and it is back when it has loaded."""
    monkeypatch.setattr(Calm, "lasts_s", 30.0)
    with closing(Calm(StormStory(1, 5, (Fault("worker dies", 5.0, 0.0, 3, 4),)))) as world:
        world.run()
    spent, total = world.spent(), 30.0 * sum(world.speeds.values())
    assert sum(spent.values()) == pytest.approx(total)
    assert spent[OFF] == 0 and len(world.diary.published) == 3
    assert 0.8 * total < spent[CURVE] < 0.97 * total
    own = world.speeds["n3"]
    assert 3 * own < spent[OUTSIDE] < 12 * own, "it loads for four to eight seconds"
    assert spent[NOTICING] + spent[AGREEING] < 2.5 * sum(world.speeds.values())
