"""Every fault is real as another machine sees it, and fixing it brings the host back. One trio serves all."""

import time
from collections.abc import Iterator

import pytest

from lab import faults
from lab.shell import LabError
from tests.support import pace
from tests.support.cluster import Cluster

VICTIM, NEIGHBOUR = "gpu-worker-1", "gpu-worker-2"


@pytest.fixture
def broken(trio: Cluster, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """The trio with the fault (name, settings) of the parametrisation; fixed at the end if the test has not."""
    name, chosen = request.param
    faults.inject(trio.lab, trio[VICTIM], name, chosen)
    assert faults.FAULTS[name].fix is None or faults.injected(trio[VICTIM]) == [name]
    yield trio
    if name in faults.injected(trio[VICTIM]):
        faults.fix(trio.lab, trio[VICTIM], name)


def fault(name: str, **chosen: float | str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("broken", [(name, chosen)], ids=[name], indirect=True)


def fix(cluster: Cluster, name: str) -> None:
    faults.fix(cluster.lab, cluster[VICTIM], name)
    assert faults.injected(cluster[VICTIM]) == []


def pings(cluster: Cluster) -> bool:
    """As a neighbour sees it."""
    address = cluster[VICTIM].spec.installed_address
    return cluster[NEIGHBOUR].outcome("ping", "-c", "1", "-W", "1", address).returncode == 0


def round_trip_ms(cluster: Cluster) -> float:
    """The shortest of ten: a busy machine adds to each, and takes from none."""
    said = cluster[NEIGHBOUR].run(
        "ping", "-q", "-c", "10", "-i", "0.1", "-W", "2", cluster[VICTIM].spec.installed_address
    )
    return float(said.rsplit("= ", 1)[1].split("/")[0])


def connection_ends(cluster: Cluster) -> list[str]:
    """Connections that a neighbour believes it has with the victim."""
    address = cluster[VICTIM].spec.installed_address
    return cluster[NEIGHBOUR].run("ss", "-Htn", "state", "established", "dst", address).splitlines()


def test_power_cut_sends_no_goodbye(trio: Cluster) -> None:
    address = trio[VICTIM].spec.installed_address
    hold = f"exec 3<>/dev/tcp/{address}/22; sleep 60"
    trio[NEIGHBOUR].run("systemd-run", "--quiet", "--collect", "--unit=hold", "bash", "-c", hold)
    pace.until(lambda: connection_ends(trio), 10, "it is not connected")
    faults.inject(trio.lab, trio[VICTIM], "power-cut")
    time.sleep(1)
    assert len(connection_ends(trio)) == 1
    assert not pings(trio)
    trio[NEIGHBOUR].run("systemctl", "stop", "hold")
    fix(trio, "power-cut")
    assert pings(trio)


@fault("cable-pull")
def test_cable_pull_leaves_it_running_alone(broken: Cluster) -> None:
    assert not pings(broken)
    assert "NO-CARRIER" in broken[VICTIM].run("ip", "link", "show", broken[VICTIM].cable.nic)
    assert broken[VICTIM].outcome("systemctl", "is-active", "ssh").stdout.strip() == "active"
    fix(broken, "cable-pull")
    broken[VICTIM].wait_until_up()


@fault("suspend")
def test_a_sleeping_host_answers_nothing_and_goes_on_where_it_was(broken: Cluster) -> None:
    assert not pings(broken)
    fix(broken, "suspend")
    broken[VICTIM].wait_until_up()


@fault("freeze")
def test_a_hung_host_takes_connections_but_says_nothing(broken: Cluster) -> None:
    address = broken[VICTIM].spec.installed_address
    connect = f"exec 3<>/dev/tcp/{address}/22 && echo connected && read -r -t 5 line <&3 && echo $line"
    assert broken[NEIGHBOUR].outcome("bash", "-c", connect).stdout.strip() == "connected"
    assert pings(broken)
    fix(broken, "freeze")
    said = lambda: broken[NEIGHBOUR].outcome("bash", "-c", connect).stdout  # noqa: E731
    pace.until(lambda: said().startswith("connected\nSSH-2.0"), 30, "it says nothing")


def test_reboot_is_a_new_boot_of_the_same_system(trio: Cluster) -> None:
    host = trio[VICTIM]
    host.run("sh", "-c", "echo kept > /root/kept")
    before = host.run("cat", "/proc/sys/kernel/random/boot_id")
    faults.inject(trio.lab, host, "reboot")
    assert host.run("cat", "/proc/sys/kernel/random/boot_id") != before
    assert host.run("cat", "/root/kept") == "kept\n"
    assert pings(trio)


@fault("delay", delay_ms=20.0)
def test_delay_is_felt_both_ways(broken: Cluster) -> None:
    assert 38 <= round_trip_ms(broken) <= 70  # one way more would be 80
    fix(broken, "delay")
    assert round_trip_ms(broken) < 5


@fault("delay", delay_ms=1.0, loss_percent=30.0)
def test_loss_loses_packets(broken: Cluster) -> None:
    address = broken[VICTIM].spec.installed_address
    said = broken[NEIGHBOUR].outcome("ping", "-q", "-c", "60", "-i", "0.02", "-W", "1", address).stdout
    lost = float(said.split("% packet loss")[0].rsplit(" ", 1)[1])
    assert 25 <= lost <= 75  # 30 % each way is 51 % of the round trips


@fault("nic-renamed")
def test_a_renamed_card_leaves_the_host_unreachable_by_its_old_plan(broken: Cluster) -> None:
    assert broken[VICTIM].cable.nic == "enp99s0"
    assert not pings(broken)
    fix(broken, "nic-renamed")
    broken[VICTIM].wait_until_up()
    assert broken[VICTIM].cable.nic == "enp3s0"


@fault("disk-full")
def test_a_full_disk_takes_no_byte_more(broken: Cluster) -> None:
    write = broken[VICTIM].outcome("dd", "if=/dev/zero", "of=/home/user/file", "bs=1M", "count=4")
    assert "No space left on device" in write.stderr
    fix(broken, "disk-full")
    broken[VICTIM].run("dd", "if=/dev/zero", "of=/home/user/file", "bs=1M", "count=4")


@fault("apt-lock")
def test_apt_is_locked(broken: Cluster) -> None:
    install = ["apt-get", "-y", "install", "--reinstall", "less"]
    broken[VICTIM].run("apt-get", "update")
    assert "Could not get lock" in broken[VICTIM].outcome(*install).stderr
    fix(broken, "apt-lock")
    broken[VICTIM].run(*install)


@fault("wrong-password")
def test_the_password_is_refused(broken: Cluster) -> None:
    assert "Permission denied" in broken.ssh(VICTIM, "true").stderr
    fix(broken, "wrong-password")
    assert broken.ssh(VICTIM, "true").returncode == 0


@fault("no-sudo")
def test_sudo_is_refused_to_a_good_password(broken: Cluster) -> None:
    become = "echo lab-password | sudo -S -p '' true"
    assert "not in the sudoers file" in broken.ssh(VICTIM, become).stderr
    fix(broken, "no-sudo")
    assert broken.ssh(VICTIM, become).returncode == 0


def test_its_own_name_is_loopback(trio: Cluster) -> None:
    trio[VICTIM].run("sh", "-c", "hostname node-one; sed -i /127.0.1.1/d /etc/hosts")
    faults.inject(trio.lab, trio[VICTIM], "loopback-name")
    assert trio[VICTIM].run("getent", "hosts", "node-one").split()[0] == "127.0.1.1"
    fix(trio, "loopback-name")
    assert trio[VICTIM].outcome("getent", "hosts", "node-one").stdout.split()[:1] != ["127.0.1.1"]


def test_a_reinstalled_host_has_other_keys_and_nothing_of_before(trio: Cluster) -> None:
    assert trio.ssh(VICTIM, "true").returncode == 0
    known = trio.known_hosts().read_text()
    trio[VICTIM].run("touch", "/home/user/mine")
    faults.inject(trio.lab, trio[VICTIM], "reinstalled")
    assert trio.known_hosts().read_text() != known
    (trio.folder / "old_known_hosts").write_text(known)
    address = trio[VICTIM].spec.installed_address
    strict = f"ssh -o BatchMode=yes -o UserKnownHostsFile={trio.folder}/old_known_hosts user@{address} true"
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in trio.controller(*strict.split()).stderr
    assert trio[VICTIM].outcome("test", "-e", "/home/user/mine").returncode == 1


def test_bad_settings_are_refused_with_the_good_ones() -> None:
    with pytest.raises(LabError, match=r"fault slow-link takes rate_mbit=…, not 'rate=20'"):
        faults.settings("slow-link", ["rate=20"])
    with pytest.raises(LabError, match="must be a number"):
        faults.settings("slow-link", ["rate_mbit=fast"])


def test_a_fault_is_injected_once_and_mended_once(trio: Cluster) -> None:
    faults.inject(trio.lab, trio[VICTIM], "cpu-throttle")
    with pytest.raises(LabError, match="fix it first"):
        faults.inject(trio.lab, trio[VICTIM], "cpu-throttle")
    fix(trio, "cpu-throttle")
    with pytest.raises(LabError, match="nothing is broken"):
        faults.fix(trio.lab, trio[VICTIM], "cpu-throttle")
