"""When the unit of a run starts it again, and when never: with a stand-in for the agent, on a host after bootstrap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import faults
from lab.host import Host
from lab.profile import USER
from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

HOME = f"/home/{USER}/ai-cluster"
UNIT = "motley-run.service"
BEGUN = "/dev/shm/begun"
"""Gone after a restart."""
SAVES = "trap 'sleep 1; exit 143' TERM"
IGNORES = "trap '' TERM"
SLOW_BOOT = """\
[Service]
Type=oneshot
ExecStart=sleep infinity
TimeoutStartSec=infinity
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def machine(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Host:
    person = Person(pair, tmp_path_factory.mktemp("person"))
    person.writes()
    said = person.types("bootstrap", phase="run")
    assert said.rc == 0, said.out
    return pair["gpu-master"]


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    yield machine
    machine.run("rm", "-f", f"{HOME}/config/run-wanted")
    machine.run("systemctl", "kill", "-s", "KILL", UNIT, check=False)
    machine.run("systemctl", "stop", UNIT)


def state(host: Host) -> str:
    return host.outcome("systemctl", "is-active", UNIT).stdout.strip()


def main_pid(host: Host) -> str:
    return host.run("systemctl", "show", "-P", "MainPID", UNIT).strip()


def wanted(host: Host) -> Path:
    return host.disk.root / HOME.lstrip("/") / "config/run-wanted"


def starts(host: Host, how_it_ends: str) -> None:
    """As a launch does it: the script, then the file."""
    script = host.disk.root / HOME.lstrip("/") / "scripts/launch_cluster.sh"
    for folder in (script.parent, wanted(host).parent):
        folder.mkdir(parents=True, exist_ok=True)
    host.run("rm", "-f", BEGUN)
    script.write_text(f"#!/bin/bash\n{how_it_ends}\ntouch {BEGUN}\nwhile :; do sleep 0.1; done\n")
    script.chmod(0o755)
    wanted(host).write_text("r\n")
    runs(host)


def runs(host: Host) -> None:
    pace.until(lambda: state(host) == "active", 60, "it does not start")
    pace.until(lambda: host.outcome("test", "-e", BEGUN).returncode == 0, 60, "it does not begin")


def restart(pair: Cluster, host: Host) -> None:
    faults.inject(pair.lab, host, "reboot")


def stays_ended(host: Host) -> None:
    """Longer than systemd and the path would wait before they start it again."""
    pace.until(lambda: state(host) in ("inactive", "failed"), 20, "it does not end")
    until = pace.now() + 5
    pace.until(lambda: pace.now() > until or state(host) not in ("inactive", "failed"), 10)
    assert state(host) in ("inactive", "failed") and not wanted(host).exists()


def test_a_restart_before_the_last_boot_was_complete_keeps_what_is_wanted(pair: Cluster, host: Host) -> None:
    """As where a machine waits two minutes for a network and is restarted once more in that time."""
    (host.disk.root / "etc/systemd/system/slow-boot.service").write_text(SLOW_BOOT)
    host.run("systemctl", "enable", "slow-boot.service")
    starts(host, SAVES)
    for _ in range(2):
        restart(pair, host)
        runs(host)
        assert host.outcome("systemctl", "is-system-running").stdout.strip() == "starting"
    host.run("systemctl", "disable", "--now", "slow-boot.service")


def test_a_shutdown_that_kills_what_is_too_slow_keeps_what_is_wanted(pair: Cluster, host: Host) -> None:
    patient(host)
    starts(host, IGNORES)
    restart(pair, host)
    runs(host)


def patient(host: Host) -> None:
    """For two seconds only."""
    folder = f"/run/systemd/system/{UNIT}.d"
    host.run("sh", "-c", f"mkdir -p {folder} && printf '[Service]\\nTimeoutStopSec=2\\n' >{folder}/patience.conf")
    host.run("systemctl", "daemon-reload")


@pytest.mark.parametrize("how_it_ends", [SAVES, IGNORES, ""], ids=["saves", "ignores", "is-not-ready"])
def test_what_root_stops_stays_stopped(host: Host, how_it_ends: str) -> None:
    patient(host)
    starts(host, how_it_ends)
    host.run("systemctl", "stop", UNIT)
    stays_ended(host)


def test_what_a_stop_had_to_kill_stays_stopped(host: Host) -> None:
    """`make stop` takes the file away first, and kills what does not end in time."""
    starts(host, IGNORES)
    wanted(host).unlink()
    host.run("kill", "-KILL", main_pid(host))
    stays_ended(host)


@pytest.mark.parametrize(("how_it_ends", "number"), [(SAVES, "KILL"), ("trap 'exit 70' TERM", "TERM")])
def test_an_agent_that_is_killed_or_fails_itself_is_started_again(host: Host, how_it_ends: str, number: str) -> None:
    starts(host, how_it_ends)
    before = main_pid(host)
    host.run("kill", f"-{number}", before)
    pace.until(lambda: main_pid(host) not in ("0", before), 30, "it is not started again")
    assert wanted(host).exists()


def test_who_restarts_the_service_stops_nothing(host: Host) -> None:
    """As needrestart does after an upgrade."""
    starts(host, SAVES)
    before = main_pid(host)
    host.run("systemctl", "restart", UNIT)
    assert state(host) == "active" and main_pid(host) != before and wanted(host).exists()


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_run_that_ends_is_no_longer_wanted(host: Host, code: int) -> None:
    starts(host, f"trap 'exit {code}' TERM")
    host.run("kill", "-TERM", main_pid(host))
    stays_ended(host)
