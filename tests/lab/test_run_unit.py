"""When the unit of a run starts it again, and when never: with a stand-in for the agent, on a host after bootstrap."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest

from lab import faults
from lab.host import Host
from lab.profile import CLUSTER_HOME as HOME
from lab.profile import PASSWORD, USER
from tests.support import pace
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

UNIT, AWAKE = "motley-run.service", "motley-awake.service"
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


SLOW_RULES = """\
[Service]
Type=oneshot
ExecStart=sh -c "sleep 5; touch /dev/shm/rules"
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def machine(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Host:
    host, person = pair["gpu-master"], Person(pair, tmp_path_factory.mktemp("person"))
    host.run("mkdir", "-p", "/usr/share/applications")  # as where there is a desktop
    secret = {"ansible_password": PASSWORD, "ansible_become_password": PASSWORD, "motley_contact_accept": True}
    played = pair.play("playbooks/bootstrap.yml", person.writes(), tags="power,run", limit=host.name, extravars=secret)
    assert played.rc == 0, played.stdout
    host.run("runuser", "-u", USER, "--", "mkdir", "-p", f"{HOME}/scripts", f"{HOME}/config")
    return host


@pytest.fixture
def host(machine: Host) -> Iterator[Host]:
    yield machine
    machine.run("rm", "-f", f"{HOME}/config/run-wanted", f"{HOME}/config/run-preload")
    machine.run("systemctl", "kill", "-s", "KILL", UNIT, check=False)
    machine.run("systemctl", "stop", UNIT)


def state(host: Host) -> str:
    return host.outcome("systemctl", "is-active", UNIT).stdout.strip()


def main_pid(host: Host, unit: str = UNIT) -> str:
    return host.run("systemctl", "show", "-P", "MainPID", unit).strip()


def wanted(host: Host) -> Path:
    return host.disk.root / HOME.lstrip("/") / "config/run-wanted"


def starts(host: Host, how_it_ends: str, file: str = "run-wanted") -> None:
    """As a launch does it: the script, then the file."""
    script = host.disk.root / HOME.lstrip("/") / "scripts/launch_cluster.sh"
    host.run("rm", "-f", BEGUN)
    script.write_text(f"#!/bin/bash\n{how_it_ends}\ntouch {BEGUN}\nwhile :; do sleep 0.1; done\n")
    script.chmod(0o755)
    wanted(host).with_name(file).write_text("r\n")
    runs(host)


def runs(host: Host) -> None:
    pace.until(lambda: state(host) == "active", 60, "it does not start")
    pace.until(lambda: host.outcome("test", "-e", BEGUN).returncode == 0, 60, "it does not begin")


def restart(pair: Cluster, host: Host) -> None:
    faults.inject(pair.lab, host, "reboot")


def stays_ended(host: Host) -> None:
    """Nothing is on its way: systemd calls a restart "activating", and a path that has found its file "running"."""
    watches = ["systemctl", "show", "-P", "SubState", "motley-run.path"]
    ended = lambda: state(host) in ("inactive", "failed") and host.run(*watches) == "waiting\n"  # noqa: E731
    pace.until(ended, 20, "it does not end")
    assert not wanted(host).exists()


@pytest.mark.long  # test_after_a_restart…
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


def test_after_a_restart_it_begins_behind_the_rules_also_where_the_shutdown_killed_it(
    pair: Cluster, host: Host
) -> None:
    """What is too slow for a shutdown is killed, and stays wanted."""
    (host.disk.root / "etc/systemd/system/motley-firewall.service").write_text(SLOW_RULES)
    host.run("systemctl", "--quiet", "enable", "motley-firewall")
    patient(host)
    starts(host, f"{IGNORES}\n[ -e /dev/shm/rules ] || touch /dev/shm/too-early")
    restart(pair, host)
    runs(host)
    host.run("systemctl", "--quiet", "disable", "motley-firewall")
    assert host.run("ls", "/dev/shm").split() == ["begun", "rules"]


def patient(host: Host) -> None:
    """For two seconds only."""
    drop_in(host, UNIT, "TimeoutStopSec=2")


def drop_in(host: Host, unit: str, setting: str) -> None:
    """Until the next restart."""
    folder = f"/run/systemd/system/{unit}.d"
    host.run("sh", "-c", f"mkdir -p {folder} && printf '[Service]\\n{setting}\\n' >{folder}/test.conf")
    host.run("systemctl", "daemon-reload")


@pytest.mark.parametrize(
    "how_it_ends",
    [
        pytest.param(SAVES, id="saves"),
        pytest.param(IGNORES, id="ignores", marks=pytest.mark.long),
        pytest.param("", id="is-not-ready", marks=pytest.mark.long),
    ],
)
def test_what_root_stops_stays_stopped(host: Host, how_it_ends: str) -> None:
    patient(host)
    starts(host, how_it_ends)
    host.run("systemctl", "stop", UNIT)
    stays_ended(host)


def test_what_a_stop_had_to_kill_stays_stopped(host: Host) -> None:
    """`./motley stop` takes the file away first, and kills what does not end in time."""
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


@pytest.mark.parametrize("code", [0, *(pytest.param(code, marks=pytest.mark.long) for code in (1, 2))])
def test_a_run_that_ends_is_no_longer_wanted(host: Host, code: int) -> None:
    starts(host, f"trap 'exit {code}' TERM")
    host.run("kill", "-TERM", main_pid(host))
    stays_ended(host)


def loads_early(host: Host) -> Path:
    """As a launch does it before its run is wanted, with a stand-in for what waits; the file that asks for it."""
    starts(host, "trap 'exit 75' TERM", "run-preload")
    return wanted(host).with_name("run-preload")


@pytest.mark.parametrize("how", ["KILL", *(pytest.param(how, marks=pytest.mark.long) for how in ("TERM", ""))])
def test_what_loads_before_a_run_and_ends_leaves_nothing(host: Host, how: str) -> None:
    """No run came, it was killed, root stops it."""
    asked_for = loads_early(host)
    host.run(*(["kill", f"-{how}", main_pid(host)] if how else ["systemctl", "stop", UNIT]))
    stays_ended(host)
    assert not asked_for.exists()


def test_a_run_that_is_wanted_when_it_ends_is_started(host: Host) -> None:
    """What was loaded may be of no use to the run."""
    asked_for = loads_early(host)
    before = main_pid(host)
    wanted(host).write_text("r\n")
    host.run("kill", "-TERM", before)
    pace.until(lambda: main_pid(host) not in ("0", before), 30, "the run is not started")
    assert wanted(host).exists() and not asked_for.exists()


def kept_awake(host: Host) -> bool:
    return "Motley" in host.run("systemd-inhibit", "--list", "--no-legend")


def test_a_run_that_asks_for_it_lets_the_machine_sleep(host: Host) -> None:
    """The agent is not root, and asks by a file: a laptop on battery, in a bag. The run itself stays."""
    starts(host, SAVES)
    pace.until(lambda: kept_awake(host), 20, "nothing keeps it awake")
    before, awake = main_pid(host), main_pid(host, AWAKE)
    host.run("kill", "-KILL", awake)
    pace.until(lambda: main_pid(host, AWAKE) not in ("0", awake) and kept_awake(host), 20, "that could be ended")
    wish(host, "touch")
    pace.until(lambda: settled(host, awake=False), 20, "it is still kept awake")
    wish(host, "rm")
    pace.until(lambda: settled(host, awake=True), 20, "it is not kept awake again")
    drop_in(host, ASKED, 'ExecStopPost=sh -c "until [ -e /run/told ]; do sleep 0.1; done"')
    wish(host, "touch")
    pace.until(lambda: asked(host) == "deactivating", 20, "nobody has heard it")
    wish(host, "rm")  # it has looked, and nothing watches yet
    host.run("touch", "/run/told")
    pace.until(lambda: settled(host, awake=True), 20, "it was not heard")
    assert main_pid(host) == before
    wish(host, "touch")
    pace.until(lambda: settled(host, awake=False), 20, "it is still kept awake")
    host.run("systemctl", "stop", UNIT)
    wish(host, "rm")
    stays_ended(host)
    assert not kept_awake(host), "kept awake, and no run is running"


def settled(host: Host, *, awake: bool) -> bool:
    return asked(host) == "inactive" and kept_awake(host) == awake


def wish(host: Host, program: str) -> None:
    """As the agent does it."""
    host.run("runuser", "-u", USER, "--", "sh", "-c", f"{program} {HOME}/config/may-sleep; touch {HOME}/config/asked")


THEN = f"{HOME}/config/then"
ASKED = "motley-asked.service"


def asks_to_switch_off(host: Host, grace_s: int) -> None:
    asks_for(host, "poweroff", grace_s)
    pace.until(lambda: asked(host) == "activating", 20, "nobody has heard it")


def asks_for(host: Host, word: str, grace_s: int) -> None:
    """As the agent does at its end; the unit waits for that end, and for whoever calls it off."""
    drop_in(host, ASKED, f"Environment=GRACE_S={grace_s}")
    host.run("runuser", "-u", USER, "--", "sh", "-c", f"echo {word} >{THEN}")


def asked(host: Host) -> str:
    return host.outcome("systemctl", "is-active", ASKED).stdout.strip()


def test_who_removes_the_file_keeps_the_machine_on(host: Host) -> None:
    asks_to_switch_off(host, 1000)
    host.run("rm", THEN)
    pace.until(lambda: asked(host) == "inactive", 20, "it still waits")
    assert host.running


def test_a_machine_switches_itself_off_when_the_run_is_over_and_not_before(host: Host) -> None:
    starts(host, "trap 'exit 0' TERM")
    agent = main_pid(host)
    asks_to_switch_off(host, 1)
    asked_pid, sleeps = main_pid(host, ASKED), set[str]()

    def waits_on() -> bool:
        """It would sleep once for nobody."""
        sleeps.update(host.run("pgrep", "-x", "-P", asked_pid, "sleep", check=False).split())
        return len(sleeps) > 3

    pace.until(waits_on, 60, "it does not wait for the run")
    assert main_pid(host) == agent
    host.run("kill", "-TERM", agent)
    pace.until(lambda: not host.running, 60, "it stays on")
    host.boot()
    assert host.outcome("test", "-e", THEN).returncode and not wanted(host).exists()


def test_a_machine_that_cannot_sleep_says_why_and_stays_on(host: Host) -> None:
    """No host of the lab can: a machine whose firmware has no sleep answers in the same way."""
    asks_for(host, "suspend", 1)
    why = ["journalctl", "-q", "-u", ASKED, "-o", "cat", "--no-pager", "-g", "suspend did not work: .+"]
    pace.until(lambda: not host.outcome(*why).returncode, 60, "it does not say that it could not")
    print(host.run(*why))
    assert host.running and host.outcome("test", "-e", THEN).returncode


@pytest.fixture
def limited(host: Host) -> Iterator[Host]:
    """With a simulated card, its driver, and what a launch writes for motley_power_limit_w and motley_max_celsius."""
    packages = ["nvidia-driver-580-open", "linux-modules-nvidia-580-open-generic-hwe-24.04", "nvidia-dkms-580-open-"]
    host.run("apt-get", "-qq", "update")
    host.run("env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-qq", "-y", "install", *packages)
    host.run("modprobe", "nvidia")
    limits = host.disk.root / HOME.lstrip("/") / "config/cluster_config.yaml"
    limits.write_text('run: "r"\nlimits: {"watts": 250, "celsius": 70}\n')
    yield host
    limits.unlink()


def card(host: Host) -> tuple[str, str]:
    """Watts, and degrees at which it slows down."""
    watts = host.run("nvidia-smi", "--query-gpu=power.limit", "--format=csv,noheader,nounits").strip()
    target = host.run("sh", "-c", "nvidia-smi -q -d TEMPERATURE | sed -n 's/.*Target.*: //p'").strip()
    return watts, target


def test_the_card_has_its_limits_for_the_run_alone(pair: Cluster, limited: Host) -> None:
    """Which is killed, started again and stopped; then a power cut; then limits that are refused."""
    before, limits = card(limited), ("250.00", "70 C")
    assert before[1] == "83 C" and before[0] != "250.00"
    starts(limited, SAVES)
    assert card(limited) == limits
    agent = main_pid(limited)
    limited.run("kill", "-KILL", agent)
    pace.until(lambda: main_pid(limited) not in ("0", agent), 30, "it is not started again")
    assert card(limited) == limits
    limited.run("systemctl", "stop", UNIT)
    assert card(limited) == before

    starts(limited, SAVES)
    assert card(limited) == limits
    faults.inject(pair.lab, limited, "power-cut")
    wanted(limited).unlink()
    faults.fix(pair.lab, limited, "power-cut")
    assert card(limited) == before

    limits_that_no_card_takes(limited)
    starts(limited, SAVES)
    assert card(limited) == before, "a limit that is refused does not keep the run from starting"


def limits_that_no_card_takes(host: Host) -> None:
    file = host.disk.root / HOME.lstrip("/") / "config/cluster_config.yaml"
    file.write_text('limits: {"watts": 30, "celsius": "$(reboot)"}\n')


def test_whoever_sits_there_pauses_by_the_desktop(host: Host) -> None:
    entry = ConfigParser(interpolation=None)
    entry.read_string(host.run("cat", "/usr/share/applications/motley-pause.desktop"))
    file = host.disk.root / HOME.lstrip("/") / "pause"

    def clicks(group: str) -> str | None:
        host.run("runuser", "-u", USER, "--", *entry[group]["Exec"].split())
        return file.read_text() if file.exists() else None

    assert entry["Desktop Entry"]["Actions"] == "hours;back;"
    assert [clicks("Desktop Entry") for _ in range(3)] == ["", None, ""]
    assert [clicks(f"Desktop Action {name}") for name in ("hours", "back", "back")] == ["2h\n", None, None]
    host.run("sh", "-c", f"echo root > /root/kept; ln -s /root/kept {HOME}/pause")
    assert host.outcome("/usr/local/bin/motley-pause", "2h").returncode != 0, "as root it acts as whose folder it is"
    assert host.run("cat", "/root/kept") == "root\n"
    host.run("/usr/local/bin/motley-pause", "off")
    other = host.outcome("runuser", "-u", "nobody", "--", "/usr/local/bin/motley-pause")
    assert other.returncode != 0 and not file.exists(), "who may not write there is asked for a password"
    if host.outcome("sh", "-c", "command -v pkexec").returncode:
        assert "sudo /usr/local/bin/motley-pause on" in other.stdout + other.stderr
