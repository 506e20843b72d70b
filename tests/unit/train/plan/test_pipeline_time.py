"""The seconds of a pipe's step."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.plan.estimate.pipeline_time import step_seconds
from train.plan.placement.pipeline_split import bubble

SECONDS = st.lists(st.floats(0.01, 5), min_size=1, max_size=5)


@pytest.mark.parametrize(("stages", "count"), [*itertools.product((1, 2, 3, 5), (1, 4, 32))])
def test_equal_stages_without_a_link_wait_for_the_bubble_alone(stages, count):
    whole = step_seconds([1.0] * stages, [2.0] * stages, 0.0, count)
    assert whole == pytest.approx(3 * (count + stages - 1))
    assert 1 - 3 * count / whole == pytest.approx(bubble(stages, count))


def test_two_machines_with_a_slow_link_by_hand():
    """A has both sent off by 2; B computes with the first from 5 to 7, and its gradient is back at 11. The second has
    the link to B from 5 to 9, and B until 11; its gradient is there at 15, and done at 16."""
    assert step_seconds([1, 1], [1, 1], 4, 2) == 16


def test_who_stands_in_the_middle_shares_its_link():
    """Two hidden states or gradients of each micro-batch go in, and two go out."""
    count = 200
    for stages, times in ((2, 1), (3, 2), (4, 2)):
        least = times * count
        assert step_seconds([1e-3] * stages, [1e-3] * stages, 1.0, count) > 0.99 * least


@given(SECONDS, st.floats(0, 3), st.integers(1, 12))
def test_it_takes_no_less_than_its_slowest_part_and_no_more_than_one_after_the_other(stages, hop_s, count):
    backward = [2 * each for each in stages]
    hops = 2 * (len(stages) - 1) * hop_s
    once, found = 3 * sum(stages) + hops, step_seconds(stages, backward, hop_s, count)
    assert found <= count * once * (1 + 1e-9)
    assert found >= max(once, 3 * count * max(stages)) * (1 - 1e-9)
    assert step_seconds(stages, backward, hop_s, count + 1) > found
    if len(stages) <= 2:  # where links are shared, a slower one may let another micro-batch go first, to all's gain
        assert step_seconds(stages, backward, hop_s + 0.1, count) >= found * (1 - 1e-9)
