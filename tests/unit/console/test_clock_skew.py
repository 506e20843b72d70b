"""How far a node's clock is off, whatever the way there takes."""

from hypothesis import given
from hypothesis import strategies as st

from console.clock_skew import off_by

SECONDS = st.floats(0, 100)


@given(st.floats(-1e5, 1e5), SECONDS, SECONDS, SECONDS)
def test_what_is_told_is_certain(off_s: float, there_s: float, busy_s: float, back_s: float) -> None:
    first = there_s + off_s
    told = off_by(0.0, first, first + busy_s, there_s + busy_s + back_s)
    assert abs(told) <= abs(off_s) + 1e-6 and told * off_s >= 0
    assert abs(off_s) - abs(told) <= max(there_s, back_s) + 1e-6


def test_a_slow_way_is_no_fault_of_the_clock() -> None:
    assert off_by(0.0, 12.0, 12.5, 13.0) == 0
    assert off_by(0.0, 40.0, 40.5, 1.0) == 39.5
    assert off_by(0.0, -40.0, -39.5, 1.0) == -40.0
