"""A machine whose clock was wrong for a while, in the report: the steps are those that all have trained."""

from __future__ import annotations

from pathlib import Path

import pytest

from console.report.page import figures, headline
from console.report.read_run import read_history
from tests.support.run_files import HEAD, WORKER, Event, done, member, start, step, write

BOTH, ALONE = {HEAD: 5, WORKER: 3}, {HEAD: 8}
FIRST = [start(100, 0, [HEAD, WORKER]), *(step(100 + 2 * n, n, BOTH) for n in range(1, 5))]
WITHOUT = [start(120, 4, [HEAD]), *(step(112 + 2 * n, n, ALONE) for n in range(5, 7))]
AGAIN = [start(140, 6, [HEAD, WORKER]), *(step(128 + 2 * n, n, BOTH) for n in range(7, 13)), done(153.0, 12)]
SAID = ("12 of 12 steps on 2 machines in 53 s", ("machines", "1 lost, back", "no step trained twice, none missing"))


def ahead(seconds: float, events: list[Event]) -> list[Event]:
    return [event | {"time": event["time"] + seconds} for event in events]


def said(folder: Path, of_worker: list[Event]) -> object:
    write(folder / HEAD, "events.jsonl", [*FIRST, *WITHOUT, *AGAIN])
    write(folder / WORKER, "events.jsonl", of_worker)
    news = [member("lost", 113.0, HEAD, [WORKER], "silent"), member("joined", 139.0, HEAD, [WORKER], "back")]
    write(folder / HEAD, "members.jsonl", news)
    history = read_history(folder)
    return headline(history), next(one for one in figures(history) if one[0] == "machines")


@pytest.mark.parametrize("seconds", [0, 9, 3600, -3600, -40 * 86400])
@pytest.mark.parametrize("until", [1, 4, len(AGAIN)], ids=["set before its first step", "set later", "never set"])
def test_a_machine_that_comes_back_with_another_time_changes_no_figure(
    tmp_path: Path, seconds: float, until: int
) -> None:
    assert said(tmp_path, [*FIRST, *ahead(seconds, AGAIN[:until]), *AGAIN[until:]]) == SAID


def test_a_clock_that_is_set_back_takes_no_steps_from_a_machine_alone(tmp_path: Path) -> None:
    write(tmp_path / HEAD, "events.jsonl", [*ahead(3600, FIRST), *WITHOUT])
    history = read_history(tmp_path)
    assert headline(history).startswith("6 of 12 steps") and history.seconds < 60


def test_what_a_machine_without_a_shared_step_wrote_stays_as_it_is(tmp_path: Path) -> None:
    write(tmp_path / HEAD, "events.jsonl", FIRST)
    write(tmp_path / WORKER, "events.jsonl", [start(90, 0, [WORKER])])
    assert [event["time"] for event in read_history(tmp_path).starts] == [90, 100]
