"""Up, reset, snapshot, restore, down: nothing is left behind, not even by a crash, and nothing gets out of a lab."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lab import cgroups, disk, network
from lab import lab as labs
from lab.host import Host
from lab.place import Place
from lab.shell import LabError, run
from tests.support.cluster import REPOSITORY, Cluster, hosts


def left_of(place: Place) -> dict[str, list[str]]:
    """All that bears the lab's name on this machine."""
    return {
        "processes": labs.processes_of(place),
        "namespaces": [name for name in network.namespaces() if place.owns_namespace(name)],
        "mounts": [str(path) for path in disk.mounts_below(place.root)],
        "loops": [line for line in run("losetup", "--all").splitlines() if f"{place.root}/" in line],
        "cgroups": [str(tree / place.cgroup) for tree in cgroups.trees() if (tree / place.cgroup).exists()],
        "files": [str(path) for path in (place.root, Path("/etc/netns") / place.controller) if path.exists()],
    }


DESCRIBES_ITSELF = ("sh", "-c", "id kept; cat /etc/machine-id /etc/ssh/ssh_host_*.pub /etc/netplan/*; ls -l /etc /home")
NOTHING: dict[str, list[str]] = {
    kind: [] for kind in ("processes", "namespaces", "mounts", "loops", "cgroups", "files")
}


def test_two_labs_do_not_meet_and_down_leaves_nothing_of_one(trio: Cluster, tmp_path: Path) -> None:
    other = Place(name="second")
    with hosts(other.name, "pair", trio.lab.suite) as lab:
        second = Cluster(lab, tmp_path)
        theirs, ours = second["gpu-master"], trio["gpu-master"]
        assert theirs.spec.installed_address == ours.spec.installed_address
        assert theirs.run("cat", "/etc/machine-id") != ours.run("cat", "/etc/machine-id")
        assert second.ssh("gpu-master", "cat /etc/machine-id").stdout == theirs.run("cat", "/etc/machine-id")
        theirs.outcome("systemctl", "stop", "ssh")
        assert all(left_of(other).values()), "a lab that is up must be seen by the search that looks for its remains"
    assert left_of(other) == NOTHING
    assert trio["gpu-master"].answers()


@pytest.mark.parametrize("after_s", [0.4, *(pytest.param(other, marks=pytest.mark.long) for other in (0.15, 0.8))])
def test_a_crash_while_it_comes_up_is_cleared(lab_allowed: None, after_s: float) -> None:
    place = Place(name="crashed")
    command = [sys.executable, "-m", "lab", "--lab", place.name, "up", "--profile", "pair", "--base", "bookworm"]
    started = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL)
    time.sleep(after_s)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    labs.down(place)
    assert left_of(place) == NOTHING


# Documentation addresses and those of the real machine: nothing is sent to them, the route is asked for.
OUTSIDE = ["192.0.2.1", "198.51.100.7", "203.0.113.9"]


def own_addresses() -> list[str]:
    links = json.loads(subprocess.run(["ip", "-json", "address"], capture_output=True, text=True, check=True).stdout)
    found = [entry["local"] for link in links for entry in link["addr_info"] if entry["family"] == "inet"]
    return [address for address in found if not address.startswith("127.")]


def test_no_outside_address_can_be_reached(trio: Cluster) -> None:
    for address in [*OUTSIDE, *own_addresses()]:
        for machine in (trio.controller, trio.stranger):
            done = machine("bash", "-c", f"exec 3<>/dev/tcp/{address}/80")
            assert "Network is unreachable" in done.stderr, (address, done.stderr)


def test_a_host_reaches_its_neighbours_but_not_the_real_machine(trio: Cluster) -> None:
    host, neighbour = trio.hosts[0], trio.hosts[1]
    host.run("ping", "-c", "1", "-W", "2", neighbour.spec.installed_address)
    for address in [*OUTSIDE, *own_addresses()]:
        assert host.outcome("ping", "-c", "1", "-W", "1", address).returncode != 0


def test_the_lab_has_no_way_out(trio: Cluster) -> None:
    """No namespace of it has a card that is not one of its own cables."""
    own = [name for name in network.namespaces() if name.startswith(f"motley-{trio.lab.place.name}-")]
    assert len(own) > len(trio.hosts)
    for namespace in own:
        cards = subprocess.run(
            ["ip", "-json", "-details", "-n", namespace, "link"], capture_output=True, text=True, check=True
        )
        kinds = {link.get("linkinfo", {}).get("info_kind", "lo") for link in json.loads(cards.stdout)}
        assert kinds <= {"lo", "veth", "bridge"}


def test_the_inventory_answers_only_inside(trio: Cluster, tmp_path: Path) -> None:
    script = REPOSITORY / "inventory/lab/hosts.sh"
    outside = subprocess.run([script], capture_output=True, text=True, check=False)
    assert outside.returncode == 2 and "10.77." not in outside.stdout
    # The system's own Python need not have what the lab needs.
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 9\n")
    (tmp_path / "python3").chmod(0o755)
    path = f"PATH={tmp_path}:{os.environ['PATH']}"
    inside = json.loads(trio.controller("env", path, str(script)).stdout)
    assert inside["cluster"]["hosts"] == [host.name for host in trio.hosts]
    assert inside["_meta"]["hostvars"]["gpu-master"]["motley_address"] == "10.77.0.100"


def test_up_twice_is_refused_and_harms_nothing(trio: Cluster) -> None:
    with pytest.raises(LabError, match="already up"):
        labs.up(trio.lab.place, "trio", trio.lab.suite)
    assert trio["gpu-master"].answers()


def test_reset_is_pristine_and_leaves_the_others_alone(trio: Cluster) -> None:
    trio["gpu-worker-1"].run("sh", "-c", "echo mine > /home/user/mine; useradd stranger")
    boot = trio["gpu-master"].run("cat", "/proc/sys/kernel/random/boot_id")
    labs.reset(trio.lab, ["gpu-worker-1"])
    assert trio["gpu-worker-1"].outcome("test", "-e", "/home/user/mine").returncode == 1
    assert trio["gpu-worker-1"].outcome("id", "stranger").returncode == 1
    assert trio["gpu-master"].run("cat", "/proc/sys/kernel/random/boot_id") == boot


def test_snapshot_and_restore_carry_files_accounts_and_deletions(fresh_trio: Cluster) -> None:
    host = fresh_trio["gpu-worker-1"]
    host.run("sh", "-c", "useradd kept; rm /etc/debian_version; echo 1 > /root/version")
    key = host.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub")
    labs.snapshot(fresh_trio.lab, "bootstrapped")
    host = fresh_trio["gpu-worker-1"]
    host.run("sh", "-c", "userdel kept; echo 2 > /root/version; touch /root/new")
    labs.restore(fresh_trio.lab, "bootstrapped")
    host = fresh_trio["gpu-worker-1"]
    assert host.run("cat", "/root/version") == "1\n"
    assert host.run("id", "-un", "kept") == "kept\n"
    assert host.outcome("test", "-e", "/root/new").returncode == 1
    assert host.outcome("test", "-e", "/etc/debian_version").returncode == 1
    assert host.run("cat", "/etc/ssh/ssh_host_ed25519_key.pub") == key
    with pytest.raises(LabError, match=r"no snapshot 'other' \(there are: bootstrapped\)"):
        labs.restore(fresh_trio.lab, "other")


def test_hosts_come_up_in_another_lab_as_they_were_kept(fresh_trio: Cluster, tmp_path: Path) -> None:
    host, kept, other = fresh_trio["gpu-worker-1"], tmp_path / "kept", Place(name="other")
    host.run("sh", "-c", "useradd kept; rm /etc/debian_version")
    as_kept = host.run(*DESCRIBES_ITSELF)
    labs.keep(fresh_trio.lab, kept)
    labs.each(fresh_trio.hosts, Host.boot)
    with hosts(other.name, "trio", fresh_trio.lab.suite, kept=kept) as lab:
        assert lab.host("gpu-worker-1").run(*DESCRIBES_ITSELF) == as_kept
        assert lab.host("gpu-worker-1").outcome("test", "-e", "/etc/debian_version").returncode == 1
        with pytest.raises(LabError, match="come from a snapshot themselves"):
            labs.keep(lab, tmp_path / "again")
        labs.reset(lab, ["gpu-worker-1"])
        assert labs.current(other).host("gpu-worker-1").outcome("id", "kept").returncode == 1
        assert lab.host("gpu-worker-2").answers()
    assert left_of(other) == NOTHING
    assert fresh_trio["gpu-worker-1"].run(*DESCRIBES_ITSELF) == as_kept


def test_the_power_button_shuts_down_in_order(trio: Cluster) -> None:
    host = trio["gpu-worker-2"]
    host.run("sh", "-c", "mkdir -p /var/log/journal; systemctl restart systemd-journald")
    host.power_off()
    assert not host.running
    host.restore_power()
    host.wait_until_up()
    assert "Reached target shutdown.target" in host.run("journalctl", "-b", "-1", "--no-pager")
