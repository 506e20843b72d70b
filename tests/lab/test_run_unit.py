"""When the unit of a run starts it again, and when never: with a stand-in for the agent, on a host after bootstrap."""

from __future__ import annotations

from collections.abc import Iterator
from configparser import ConfigParser
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


SLOW_RULES = """\
[Service]
Type=oneshot
ExecStart=sh -c "sleep 5; touch /dev/shm/rules"
[Install]
WantedBy=multi-user.target
"""


@pytest.fixture(scope="module")
def machine(pair: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Host:
    person = Person(pair, tmp_path_factory.mktemp("person"))
    person.writes()
    pair["gpu-master"].run("mkdir", "-p", "/usr/share/applications")  # as where there is a desktop
    for phase in ("power", "run"):
        said = person.types("bootstrap", phase=phase)
        assert said.rc == 0, said.out
    host = pair["gpu-master"]
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


def main_pid(host: Host) -> str:
    return host.run("systemctl", "show", "-P", "MainPID", UNIT).strip()


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
    """Whatever would start it again is on its way by then: systemd calls that "activating"."""
    pace.until(lambda: state(host) in ("inactive", "failed"), 20, "it does not end")
    until = pace.now() + 1
    pace.until(lambda: pace.now() > until or state(host) not in ("inactive", "failed"), 10)
    assert state(host) in ("inactive", "failed") and not wanted(host).exists()


@pytest.mark.long  # test_a_shutdown_that_kills…
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


def test_after_a_restart_it_begins_behind_the_rules_of_the_firewall(pair: Cluster, host: Host) -> None:
    (host.disk.root / "etc/systemd/system/motley-firewall.service").write_text(SLOW_RULES)
    host.run("systemctl", "--quiet", "enable", "motley-firewall")
    starts(host, "[ -e /dev/shm/rules ] || touch /dev/shm/too-early")
    restart(pair, host)
    runs(host)
    host.run("systemctl", "--quiet", "disable", "motley-firewall")
    assert host.run("ls", "/dev/shm").split() == ["begun", "rules"]


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
    before = main_pid(host)
    for _ in range(2):
        wish(host, "touch")
        pace.until(lambda: not kept_awake(host), 20, "it is still kept awake")
        wish(host, "rm")
        pace.until(lambda: kept_awake(host), 20, "it is not kept awake again")
    assert main_pid(host) == before
    wish(host, "touch")
    pace.until(lambda: not kept_awake(host), 20, "it is still kept awake")
    host.run("systemctl", "stop", UNIT)
    wish(host, "rm")
    stays_ended(host)
    assert not kept_awake(host), "kept awake, and no run is running"


def wish(host: Host, program: str) -> None:
    """As the agent does it."""
    host.run("runuser", "-u", USER, "--", program, f"{HOME}/config/may-sleep")


THEN = f"{HOME}/config/then"
ASKED = "motley-asked.service"


def asks_to_switch_off(host: Host, grace_s: int) -> None:
    asks_for(host, "poweroff", grace_s)
    pace.until(lambda: asked(host) == "activating", 20, "nobody has heard it")


def asks_for(host: Host, word: str, grace_s: int) -> None:
    """As the agent does at its end; the unit waits for that end, and for whoever calls it off."""
    folder = f"/run/systemd/system/{ASKED}.d"
    drop_in = f"printf '[Service]\\nEnvironment=GRACE_S={grace_s}\\n' >{folder}/grace.conf"
    host.run("sh", "-c", f"mkdir -p {folder} && {drop_in} && systemctl daemon-reload")
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
    until = pace.now() + 4  # longer than it would wait for nobody
    pace.until(lambda: pace.now() > until or asked(host) != "activating", 10)
    assert host.running and asked(host) == "activating" and main_pid(host) == agent
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
    before = card(limited)
    assert before[1] == "83 C" and before[0] != "250.00"
    for ends in ("stopped", "killed and started again", "power cut"):
        starts(limited, SAVES)
        assert card(limited) == ("250.00", "70 C"), ends
        agent = main_pid(limited)
        if ends == "power cut":
            faults.inject(pair.lab, limited, "power-cut")
            wanted(limited).unlink()
            faults.fix(pair.lab, limited, "power-cut")
        elif ends == "stopped":
            limited.run("systemctl", "stop", UNIT)
        else:
            limited.run("kill", "-KILL", agent)
            pace.until(lambda was=agent: main_pid(limited) not in ("0", was), 30, "it is not started again")
            assert card(limited) == ("250.00", "70 C"), ends
            limited.run("systemctl", "stop", UNIT)
        assert card(limited) == before, ends
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
