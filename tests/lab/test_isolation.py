"""What happens in a lab stays in it, and two labs do not meet."""

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab import lab as labs
from lab import network
from lab.place import Place
from lab.profile import load
from tests.support.cluster import REPOSITORY, Cluster, start

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


def test_two_labs_at_once(trio: Cluster, tmp_path: Path) -> None:
    other = Place(name="second")
    try:
        second = start(other.name, "pair", trio.lab.suite, tmp_path)
        theirs, ours = second["gpu-master"], trio["gpu-master"]
        assert theirs.spec.installed_address == ours.spec.installed_address
        assert theirs.run("cat", "/etc/machine-id") != ours.run("cat", "/etc/machine-id")
        assert second.ssh("gpu-master", "cat /etc/machine-id").stdout == theirs.run("cat", "/etc/machine-id")
    finally:
        labs.down(other)
    assert trio["gpu-master"].answers()


@pytest.mark.parametrize(
    "profile", ["trio", *(pytest.param(name, marks=pytest.mark.long) for name in ("pair", "five"))]
)
def test_profiles_keep_their_sum_of_cpu_near_one_core(profile: str) -> None:
    assert 80 <= sum(host.cpu_percent for host in load(profile).hosts) <= 110
