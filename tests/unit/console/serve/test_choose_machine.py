"""Which machine a request goes to: the one that would write its answer fastest, by what was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from console.serve.choose_machine import Load, Pace, choose

COMPUTES = 1.0
"""The part of a token's time that another answer beside it adds; less on a card, which reads its weights once."""


def writes(alone_s: float, answers: int, *, adds: float = COMPUTES) -> float:
    return alone_s * (1 + adds * (answers - 1))


def measured(alone_s: float, *, adds: float = COMPUTES, answers: int = 4) -> Pace:
    """After answers in numbers from one to twice `answers`."""
    pace = Pace.alone(alone_s)
    for token in range(300):
        count = 1 + token % (2 * answers)
        pace = pace.seen(count, writes(alone_s, count, adds=adds))
    return pace


def handed_out(machines: dict[str, Load], count: int) -> dict[str, int]:
    machines = dict(machines)
    for _ in range(count):
        if chosen := choose(machines):
            machines[chosen] = replace(machines[chosen], answers=machines[chosen].answers + 1)
    return {name: load.answers for name, load in machines.items()}


def test_who_has_not_been_measured_side_by_side_gets_its_part_by_its_speed() -> None:
    machines = {name: Load(Pace.alone(1 / speed), 8, 0) for name, speed in (("a", 60), ("b", 30), ("c", 15))}
    assert handed_out(machines, 8) == {"a": 5, "b": 2, "c": 1}


@pytest.mark.parametrize("adds", [1.0, 0.5, 0.1, 0.0])
def test_eight_at_once_get_what_the_machines_can_do(adds: float) -> None:
    """By no other way of handing them out is an answer written faster where it is."""
    speeds = {"a": 60, "b": 30, "c": 15}
    machines = {name: Load(measured(1 / speed, adds=adds), 8, 0) for name, speed in speeds.items()}
    found = handed_out(machines, 8)
    for name, count in found.items():
        if count:
            own = writes(1 / speeds[name], count, adds=adds)
            elsewhere = [writes(1 / speeds[other], found[other] + 1, adds=adds) for other in speeds if other != name]
            assert own <= min(elsewhere) * 1.01


def test_a_card_that_writes_many_as_fast_as_one_gets_all_of_them() -> None:
    machines = {"card": Load(measured(0.01, adds=0.02), 8, 0), "old": Load(measured(0.02), 8, 0)}
    assert handed_out(machines, 8) == {"card": 8, "old": 0}


def test_who_is_full_gets_none_and_where_all_are_nobody_is_chosen() -> None:
    machines = {"a": Load(Pace.alone(0.01), 1, 0), "b": Load(Pace.alone(1.0), 2, 0)}
    assert handed_out(machines, 9) == {"a": 1, "b": 2}
    assert choose({}) == ""


def test_a_machine_that_becomes_slower_gets_less() -> None:
    pace = measured(0.01)
    for _ in range(300):
        pace = pace.seen(4, 0.2)
    assert pace.seconds(4) == pytest.approx(0.2, rel=0.1)
    assert choose({"slower": Load(pace, 8, 3), "other": Load(Pace.alone(0.1), 8, 0)}) == "other"


def test_a_wrong_measurement_at_the_start_is_soon_forgotten() -> None:
    """As of a machine that was still reading its model, or was alone on the processor."""
    for wrong in (0.001, 1.0):
        pace = Pace.alone(wrong)
        for _ in range(300):
            pace = pace.seen(5, 0.25)
        assert [pace.seconds(n) for n in (5, 6)] == pytest.approx([0.25, 0.3], rel=0.1)


def test_the_numbers_of_a_line_between_one_and_several() -> None:
    pace = measured(0.01, adds=0.5, answers=3)
    assert [pace.seconds(n) for n in (1, 3, 5)] == pytest.approx([0.01, 0.02, 0.03], rel=0.05)
    assert pace.tokens_per_s(3) == pytest.approx(150, rel=0.05)
