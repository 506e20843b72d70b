"""Nodes load while a launch is still being prepared, and nothing is left where no run follows; with real agents."""

from __future__ import annotations

import pytest

from lab.host import Host
from lab.profile import CLUSTER_HOME as HOME
from tests.support import pace
from tests.support.bootstrap import Person

UNIT = "motley-run.service"


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Person:
    """After a first launch: model, rows and script are there."""
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    said = ready_trio.launches("-v", run="first", **SETTINGS)
    assert said.rc == 0 and said.out.count("loads: false") == 3, said.out
    return ready_trio


SETTINGS = {"model": "tiny", "max_steps": 2000, "rows_per_step": 6, "max_seq_length": 64}


def clock_at_start(host: Host) -> float:
    """When the unit's process began."""
    began_s = int(host.run("systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", UNIT)) / 1e6
    now_s, up_s = host.run("python3", "-c", "import time; print(time.time(), time.monotonic())").split()
    return float(now_s) - float(up_s) + began_s


def wanted_at(host: Host) -> float:
    return float(host.run("stat", "-c", "%.Y", f"{HOME}/config/run-wanted"))


def is_left(host: Host) -> str:
    """What asks for it, the unit's state, and any process of it."""
    look = f"ls {HOME}/config/run-preload 2>/dev/null; systemctl is-active {UNIT}; ps -eo args | grep '[m] train '"
    return host.outcome("sh", "-c", look).stdout.strip()


def nothing_is_left(person: Person) -> bool:
    return all(is_left(host) in ("inactive", "failed") for host in person.cluster.hosts)


@pytest.mark.long  # tests/unit/train/cluster/test_preload.py
def test_the_agents_of_a_run_are_there_before_it_is_wanted(person: Person) -> None:
    said = person.launches("-v", run="early", follow=False, starts=True, **SETTINGS)
    assert said.rc == 0 and said.out.count("loads: true") == 3, said.out
    for host in person.cluster.hosts:
        early_s = wanted_at(host) - clock_at_start(host)
        assert 0.5 < early_s < 60, f"{host.name}: {early_s:.1f} s"
        assert "run-preload" not in is_left(host) and "train warm" in is_left(host)
    said = person.types("stop")
    assert said.rc == 0 and nothing_is_left(person), said.out


@pytest.mark.long
def test_other_settings_of_the_environment_are_the_runs_own(person: Person) -> None:
    """What was loaded with the settings of the run before is of no use: the run begins as if nothing had been."""
    person.writes(motley_render_environment={"OMP_NUM_THREADS": 1, "OF_THIS_RUN": "yes"})
    said = person.launches("-v", run="other", follow=False, starts=True, **SETTINGS)
    assert said.rc == 0 and said.out.count("loads: true") == 3, said.out
    for host in person.cluster.hosts:
        assert clock_at_start(host) > wanted_at(host) - 0.1
        agent = host.run("systemctl", "show", "-P", "MainPID", UNIT).strip()
        assert "OF_THIS_RUN=yes" in host.run("cat", f"/proc/{agent}/environ")
    assert person.types("stop").rc == 0 and nothing_is_left(person)


@pytest.mark.long  # tests/unit/train/cluster/test_preload.py
def test_a_launch_that_is_refused_leaves_nothing(person: Person) -> None:
    """Where it is killed, a limit ends it: tests/unit/train/cluster/test_preload.py."""
    said = person.launches("-v", resume="fist", starts=True)
    assert said.rc != 0 and "no node knows a run 'fist'" in said.out and said.out.count("loads: true") == 3, said.out
    pace.until(lambda: nothing_is_left(person), 10, "something still loads")


@pytest.mark.long
@pytest.mark.parametrize("how", [{"motley_start_now": "false"}, {"motley_plan_calibrate": "true"}])
def test_a_launch_that_starts_nothing_or_measures_loads_nothing(person: Person, how: dict[str, str]) -> None:
    said = person.launches("-v", resume="fist", **{"starts": True, **how})
    assert said.rc != 0 and said.out.count("loads: false") == 3 and nothing_is_left(person), said.out


@pytest.mark.long  # tests/unit/train/cluster/test_preload.py
def test_check_mode_loads_nothing(person: Person) -> None:
    said = person.launches("-v", "--check", run="checked", starts=True, **SETTINGS)
    assert said.rc == 0 and said.out.count("loads: false") == 3 and nothing_is_left(person), said.out
