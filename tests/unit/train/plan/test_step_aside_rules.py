"""The hours in which a machine may train, by its own clock, also in the nights in which that is changed."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.errors import BadInput
from train.plan.settings import step_aside_rules

NIGHT = "22:00-07:00"


@pytest.fixture(autouse=True)
def _berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def at(*when: int) -> float:
    return time.mktime((*when, *[0] * (6 - len(when)), 0, 0, -1))


@pytest.mark.parametrize(
    ("hours", "clock", "inside"),
    [
        (NIGHT, (22, 0), True), (NIGHT, (21, 59), False), (NIGHT, (6, 59), True), (NIGHT, (7, 0), False),
        ("09:00-17:00", (9, 0), True), ("09:00-17:00", (17, 0), False), ("", (12, 0), True),
        ("22:00-24:00", (23, 59), True), ("22:00-24:00", (0, 0), False), ("0:00-7:00", (0, 0), True),
        (f"{NIGHT}, 12:00-13:00", (12, 30), True), (f"{NIGHT},12:00-13:00", (13, 0), False),
    ],
)  # fmt: skip
def test_inside(hours, clock, inside):
    assert step_aside_rules.is_inside(hours, at(2026, 11, 23, *clock)) is inside


@pytest.mark.parametrize(
    "hours", ["22-7", "22:00", "25:00-07:00", "22:60-07:00", "22:00-22:00", "night", "22:00–07:00"]
)
def test_what_is_no_window_is_refused(hours):
    with pytest.raises(BadInput, match="22:00-07:00"):
        step_aside_rules.windows(hours)


def test_the_next_begin():
    assert step_aside_rules.next_begin(NIGHT, at(2026, 11, 23, 20)) == at(2026, 11, 23, 22)
    assert step_aside_rules.next_begin(NIGHT, at(2026, 11, 23, 22)) == at(2026, 11, 24, 22)
    assert step_aside_rules.next_begin(f"{NIGHT},12:00-13:00", at(2026, 11, 23, 9)) == at(2026, 11, 23, 12)


def test_in_the_night_in_which_the_clock_is_changed():
    """On 25 October 2026 it is 02:30 twice, on 29 March 2026 never."""
    evening = at(2026, 10, 24, 23)
    assert step_aside_rules.next_begin("07:00-22:00", evening) - evening == 9 * 3600
    spring = at(2026, 3, 28, 23)
    assert step_aside_rules.next_begin("07:00-22:00", spring) - spring == 7 * 3600
    assert step_aside_rules.next_begin("02:30-07:00", spring) == pytest.approx(at(2026, 3, 29, 3), abs=1800)


def test_at():
    assert step_aside_rules.next_time("22:00", at(2026, 11, 23, 20)) == at(2026, 11, 23, 22)
    assert step_aside_rules.next_time("6:05", at(2026, 11, 23, 20)) == at(2026, 11, 24, 6, 5)
    for wrong in ("22", "24:00", "10pm", "tonight"):
        with pytest.raises(BadInput, match="--at 22:00"):
            step_aside_rules.next_time(wrong, 0)


@given(st.integers(0, 24 * 60 - 1), st.integers(1, 24 * 60 - 1), st.integers(1_760_000_000, 1_800_000_000))
def test_outside_ends_at_the_next_begin(first, length, now):
    last = (first + length) % (24 * 60)
    hours = f"{first // 60}:{first % 60:02d}-{last // 60}:{last % 60:02d}"
    begin = step_aside_rules.next_begin(hours, now)
    assert now < begin <= now + 25 * 3600 + 60
    then = time.localtime(begin)
    is_changed = time.localtime(now).tm_isdst != then.tm_isdst
    assert step_aside_rules.is_inside(hours, begin) or 1 <= then.tm_hour <= 3, "but in the hour that is skipped"
    if not step_aside_rules.is_inside(hours, now):
        assert not step_aside_rules.is_inside(hours, now + (begin - now) / 2) or is_changed


def test_rules_are_read_and_what_is_wrong_is_named():
    found = step_aside_rules.rules({"hours": NIGHT, "in_use": "auto", "programs": ["blender"], "not_before": 5})
    assert found == step_aside_rules.AsideRules(hours=NIGHT, in_use="auto", programs=("blender",), not_before=5.0)
    assert step_aside_rules.rules({"programs": "blender, cs2"}).programs == ("blender", "cs2"), "as one text"
    assert step_aside_rules.rules({}) == step_aside_rules.AsideRules()
    for wrong, words in (({"hour": NIGHT}, "did you mean 'hours'"), ({"in_use": "yes"}, "never, auto"), (7, "is not")):
        with pytest.raises(BadInput, match=words):
            step_aside_rules.rules(wrong)


@pytest.mark.parametrize(("name", "value"), [("not_before", "tonight"), ("not_before", [1]), ("programs", 5)])
def test_what_a_person_wrote_into_the_nodes_file_is_named_where_it_is_none(name, value):
    with pytest.raises(BadInput, match=f"aside: {name}: "):
        step_aside_rules.rules({name: value})
