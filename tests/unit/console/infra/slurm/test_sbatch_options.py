"""A time of a job in which a run would only start and leave is refused, in each form that Slurm takes."""

from __future__ import annotations

import pytest

from console.infra.slurm.sbatch_options import minutes_of, options_of, refuse_short
from train.errors import BadInput


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("4", 4),
        ("3:31", 4),
        ("0:03:00", 3),
        ("12:00:00", 720),
        ("1-0", 1440),
        ("1-2:03", 1563),
        ("1-02:03:04", 1564),
        ("0", None),
        ("UNLIMITED", None),
        ("infinite", None),
        ("a lot", None),
        ("1:2:3:4", None),
    ],
)
def test_a_time_is_read_as_slurm_reads_it(text: str, minutes: int | None) -> None:
    """None: no limit, or one of which Slurm itself says what is wrong."""
    assert minutes_of(text) == minutes


@pytest.mark.parametrize(
    ("options", "least"),
    [
        ("--time=1", 4),
        ("-t 3", 4),
        ("-t3", 4),
        ("--time=2:0:0 -p gpu --time=3", 4),
        ("--time=8:00:00 --time-min=2", 4),
        ("--time=4 --signal=B:USR1@300", 8),
        ("--time=3 --signal B:USR1", 4),
    ],
)
def test_a_time_that_leaves_none_to_train_is_refused(options: str, least: int) -> None:
    """The notice, 90 s unless --signal says otherwise, and two minutes for a start."""
    with pytest.raises(BadInput, match=rf"fix: --time(-min)?={least} ") as found:
        refuse_short(options_of(options))
    assert str(found.value).count("\n") == 2


@pytest.mark.parametrize(
    "options", ["-p gpu --nodes 3", "--time=4", "--time=0", "--time=3 --signal=B:USR1@20", "--time=1 -t 30"]
)
def test_a_time_in_which_it_can_train_is_let_through(options: str) -> None:
    refuse_short(options_of(options))
