"""An evening at home by the verbs: launched by day, trained in its hours, machines that go to bed and are woken."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.typed import variables
from tests.support.watching import Watching

NAMES = ("gpu-master", "gpu-worker-1", "gpu-worker-2")
AHEAD_MIN = 4
"""A launch is done within this, and waits then."""


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    for phase in ("power", "run"):
        ready_trio.bootstraps(phase=phase)
    yield ready_trio
    ready_trio.types("stop")


def clock(person: Person, at: float) -> str:
    return person.cluster[NAMES[0]].run("date", "-d", f"@{at:.0f}", "+%H:%M").strip()


@pytest.mark.long
def test_launched_by_day_trained_at_night_asleep_after_it_and_woken(person: Person) -> None:
    opens = (time.time() // 60 + AHEAD_MIN) * 60
    hours = f"{clock(person, opens)}-{clock(person, opens + 3600)}"
    person.writes(motley_hours=hours, motley_render_environment={"OMP_NUM_THREADS": 1})
    run = ["model=tiny", "rows_per_step=24", "max_seq_length=64", "max_steps=60", "run=evening"]
    words = variables(*run)
    refused = person.types("launch", *words, "--then", "poweroff")
    assert refused.rc == 1 and f"a minute after the run {', '.join(NAMES)} are switched off" in refused.out
    launch = Watching(person, "launch", *words, "--then", "poweroff", "--yes")
    launch.hears("started on 3 of 3 nodes", 60 * AHEAD_MIN)
    assert time.time() < opens, "the launch took too long for this test"

    def says_until_when() -> bool:
        said = person.types("status").out
        return said.count(f"outside its hours {hours}, until {clock(person, opens)}") >= 3

    pace.until(says_until_when, 60, lambda: person.types("status").out)
    launch.hears(r"done · 60 steps · loss \d", 60 * AHEAD_MIN + 120)
    assert time.time() > opens, "it trained by day"
    assert launch.ends(30) == 0

    hosts = person.cluster.hosts
    pace.until(lambda: not any(host.running for host in hosts), 180, "somebody stays on")
    woken = person.types("wake")
    assert woken.rc == 0 and all(f"{name}" in woken.out for name in NAMES), woken.out
    person.types("fetch", "--run", "evening", "--results", str(person.folder / "results")).went_well()
    assert (person.folder / "results/evening/adapter").is_dir()
