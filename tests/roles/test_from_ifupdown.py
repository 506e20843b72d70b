"""Debian as its own installer leaves it: ifupdown keeps its card until somebody agrees, and gets it back on an undo."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lab import faults, real_packages
from lab.host import Host
from tests.support import cluster as clusters
from tests.support import pace, router
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

ROUTER, LEASED, FIXED = "gpu-master", "gpu-worker-1", "gpu-worker-2"
AGREED = {"motley_static_ip_adopt": "netplan"}
BY_DHCP = (
    "source /etc/network/interfaces.d/*\n\nauto lo\niface lo inet loopback\n\n"
    "allow-hotplug {nic}\niface {nic} inet dhcp\n"
)
OTHER = "# the owner's\r\nauto {nic}\niface {nic} inet static\n\taddress 10.99.0.5/24"


@pytest.fixture(scope="module")
def debians(lab_allowed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    shape = [f"{name}=debian-ifupdown" for name in (LEASED, FIXED)]
    with clusters.hosts(f"t{os.getpid()}i", "trio", None, shape=shape) as lab:
        yield Cluster(lab, tmp_path_factory.mktemp("debians"))


@pytest.fixture
def person(debians: Cluster, tmp_path: Path) -> Person:
    return Person.with_inventory(debians, tmp_path)


def state(host: Host) -> str:
    """Every file of its network, byte by byte, what is up by ifupdown, and what is on."""
    files = "find /etc/network /etc/netplan /etc/systemd /etc/resolv.conf -type f -exec md5sum {} + 2>/dev/null | sort"
    units = "systemctl is-active networking systemd-networkd; systemctl is-enabled networking systemd-networkd"
    shown = host.run("sh", "-c", f"{files}; ifquery --state | sort; {units}; ip -br -4 address; ip -4 route; true")
    return "\n".join(line.rstrip() for line in shown.splitlines())


def has(host: Host, address: str) -> None:
    shown = lambda: host.run("ip", "-br", "-4", "address", "show", "dev", host.spec.nics[0]) + " "  # noqa: E731
    pace.until(lambda: f" {address}/24 " in shown(), 60, shown)


def killed_while_it_changes(person: Person, name: str, happened: Callable[[], bool]) -> None:
    running = person.starts("bootstrap", limit=name, phase="static_ip")
    pace.until(lambda: happened() or running.poll() is not None, pace.HANG_S)
    assert running.poll() is None
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()


@pytest.mark.long
def test_a_fixed_address_of_ifupdown_becomes_netplans_and_comes_back(person: Person) -> None:
    host = person.cluster[FIXED]
    lan, spare = host.spec.nics
    write = r"cat > /etc/network/interfaces.d/spare; printf '# caf\351\r' >> /etc/network/interfaces; ifup -a"
    host.run("sh", "-c", write, stdin=OTHER.format(nic=spare))
    before = state(host)
    assert f"{lan}={lan}" in before and "10.99.0.5" in before

    said = person.types("bootstrap", limit=FIXED, phase="static_ip")
    assert (
        said.rc == 1
        and f"{lan} is set up without netplan" in said.out
        and "motley_static_ip_adopt: netplan" in said.out
    )
    assert state(host) == before

    person.writes(motley_gateway="10.77.0.250", **AGREED)
    said = person.types("bootstrap", limit=FIXED, phase="static_ip")
    assert said.rc == 1 and "nobody answers at the gateway" in said.out and "as before" in said.out, said.out
    assert state(host) == before

    person.writes(**AGREED)
    person.bootstraps(limit=FIXED, phase="static_ip")
    has(host, host.spec.address)
    adopted = state(host)
    assert "10.99.0.5" in adopted and f"{spare}={spare}" in adopted and f"{lan}={lan}" not in adopted
    assert person.bootstraps(limit=FIXED, phase="static_ip").changed() == {FIXED: 0}
    host.power_off()
    host.restore_power()
    host.wait_until_up()
    has(host, host.spec.address)
    assert state(host) == adopted

    person.types("undo", limit=FIXED, phase="static_ip").went_well()
    assert state(host) == before


@pytest.mark.long  # test_other_installers.py
def test_an_address_from_the_router_by_ifupdown_becomes_netplans_also_after_a_power_cut(person: Person) -> None:
    host, server = person.cluster[LEASED], router.answers_for_names(person.cluster[ROUTER])
    router.hands_out_addresses(person.cluster[ROUTER], server)
    with tempfile.TemporaryDirectory(dir=person.folder) as folder:
        for file in real_packages.download(host.suite, host.disk.root, ["isc-dhcp-client"], Path(folder)):
            (host.disk.root / "root" / file.name).write_bytes(file.read_bytes())
    host.run("sh", "-ec", "dpkg -i /root/*.deb; rm /root/*.deb; apt-get -qq update")
    settings = BY_DHCP.format(nic=host.spec.nics[0])
    host.run(
        "sh",
        "-ec",
        f"ifdown {host.spec.nics[0]}; cat > /etc/network/interfaces; ifup {host.spec.nics[0]}",
        stdin=settings,
    )
    leased = router.address_by_lease(host)
    host.wait_until_up()
    resolved = host.run("cat", "/etc/resolv.conf")
    assert server in resolved

    person.writes({LEASED: {"motley_current_address": leased}}, motley_dns=None, **AGREED)
    killed_while_it_changes(person, LEASED, lambda: host.spec.address in host.run("ip", "-br", "-4", "address"))
    faults.inject(person.cluster.lab, host, "power-cut")
    faults.fix(person.cluster.lab, host, "power-cut")
    assert router.address_by_lease(host) == leased
    host.wait_until_up()

    assert "names resolve" in person.bootstraps(limit=LEASED, phase="static_ip").out
    has(host, host.spec.address)
    assert host.outcome("pgrep", "-x", "dhclient").returncode == 1
    time.sleep(router.LEASE_S + 1)
    assert host.run("ip", "-br", "-4", "address", "show", "dev", host.spec.nics[0]).split()[2:] == [
        f"{host.spec.address}/24"
    ]
    assert host.run("getent", "ahostsv4", "pypi.org").startswith("198.51.100.7")

    person.types("undo", limit=LEASED, phase="static_ip").went_well()
    assert router.address_by_lease(host) == leased
    time.sleep(router.LEASE_S + 1)
    assert router.address_by_lease(host) == leased, "the client that renews it lives on"
    assert host.run("cat", "/etc/network/interfaces") == settings
