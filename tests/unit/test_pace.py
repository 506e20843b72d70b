"""A limit is in seconds of an idle machine: who is slower, or becomes slower, is waited for longer."""

import subprocess
import sys

import pytest

from tests.support import pace
from tests.support.pace import Clock, crowd


class Machine:
    def __init__(self) -> None:
        self.slowness, self.time = 1.0, 0.0

    def clock(self) -> Clock:
        return Clock(lambda: self.slowness, lambda: self.time)


def test_its_clock_runs_slower_where_the_machine_is_slower_and_when_it_becomes_so() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.time = 10
    assert clock.now() == 10
    machine.slowness = 5
    machine.time = 20
    assert clock.now() == 12, "it may have become slower at once"
    machine.time = 30
    assert clock.now() == 14
    machine.slowness = 1
    machine.time = 40
    assert clock.now() == 16, "or faster a moment ago"
    machine.time = 50
    assert clock.now() == 26


def test_its_clock_goes_on_between_two_measurements_and_never_back() -> None:
    machine = Machine()
    clock = machine.clock()
    machine.time = 1.5
    assert clock.now() == 1.5
    machine.slowness = 10
    machine.time = 3
    assert clock.now() == 1.5


@pytest.mark.parametrize(
    ("loadavg", "wanted"),
    [("0.10 0.20 0.30 1/200 99", 0.5), ("8.00 3.00 1.00 2/200 99", 4.0), ("1.00 1.00 1.00 12/200 99", 6.0)],
)
def test_who_wants_to_compute_is_counted_now_and_over_the_last_minute(loadavg: str, wanted: float) -> None:
    assert crowd(loadavg, 2) == wanted


def test_an_idle_machine_is_no_faster_than_one_and_a_stuck_one_is_not_waited_for_all_day() -> None:
    assert 1 <= pace.measured() <= pace.MOST


def test_what_comes_is_returned_and_what_does_not_is_told() -> None:
    tries = iter(["", "", "here"])
    assert pace.until(lambda: next(tries), 5, every_s=0) == "here"
    with pytest.raises(AssertionError, match=r"not within \d+ s here, 0 s of an idle machine: nobody came"):
        pace.until(lambda: False, 0, lambda: "nobody came")


def test_a_program_is_waited_for_and_ended_where_it_hangs() -> None:
    done = pace.run(sys.executable, "-c", "import sys; print('said'); sys.exit(3)")
    assert (done.returncode, done.stdout, done.stderr) == (3, "said\n", "")
    with pytest.raises(AssertionError, match="does not end within 0 s"):
        pace.run("sleep", "600", limit_s=0)
    assert pace.ended(subprocess.Popen(["sh", "-c", "exit 4"])) == 4
