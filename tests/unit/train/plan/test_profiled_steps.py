"""`profile: 20-23`: which steps are recorded."""

import pytest

from train.errors import BadInput
from train.plan.settings.profile import profiled_steps, to_record
from train.plan.settings.read_settings import load_config


def test_a_range_a_step_or_none():
    assert profiled_steps("20-23") == range(20, 24) and profiled_steps("7") == range(7, 8) and not profiled_steps("")


@pytest.mark.parametrize("text", ["0-3", "23-20", "some", "20-", "-3", "20:23", "1-2-3"])
def test_what_is_no_range_is_refused_with_an_example(text):
    with pytest.raises(BadInput) as refused:
        profiled_steps(text)
    assert "is not FIRST-LAST" in str(refused.value) and "profile=20-23" in str(refused.value)


def test_too_many_and_too_late_ones_are_refused():
    with pytest.raises(BadInput, match=r"20-40 are 21 steps, at most 20 are recorded\n.*profile=20-39"):
        profiled_steps("20-40")
    with pytest.raises(BadInput, match="profile: 20-23 is after the last step, 19"):
        load_config({"profile": "20-23", "max_steps": 19})


def test_it_is_no_part_of_what_a_run_is():
    assert load_config({"profile": "20-23"}).scoped("math") == load_config({}).scoped("math")


def test_what_a_run_has_passed_is_said_with_what_it_can_still_record():
    assert to_record("20-23", 0, 40) == (range(20, 24), "")
    assert to_record("20-23", 21, 40) == (range(22, 24), "profile 20-23: 22-23 alone; this run is at step 21 of 40")
    steps, why = to_record("20-23", 30, 40)
    assert not steps and why == (
        "profile 20-23: nothing is recorded, step 30 is done already; for the next ones: profile=31-34"
    )
    steps, why = to_record("50-53", 0, 40)
    assert not steps and why == "profile 50-53: nothing is recorded, this run ends with step 40"
    assert to_record("20-23", 40, 40)[1] == "profile 20-23: nothing is recorded, this run ends with step 40"
    assert to_record("", 5, 40) == (range(0), "")
