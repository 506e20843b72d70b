"""A machine whose router gave it its address gets a fixed one: the same, or another."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from lab.host import Host
from tests.support import router
from tests.support.bootstrap import Person
from tests.support.cluster import Cluster

ROUTER, STAYS, MOVES = "gpu-master", "gpu-worker-1", "gpu-worker-2"


@pytest.fixture(scope="module")
def leased(trio: Cluster) -> dict[str, str]:
    """Both get their addresses by DHCP, as most machines at home do."""
    router.hands_out_addresses(trio[ROUTER])
    return {name: by_dhcp(trio[name]) for name in (STAYS, MOVES)}


def by_dhcp(host: Host) -> str:
    own = "/etc/netplan/00-installer-config.yaml"
    host.run("sed", "-i", "s/dhcp4: false/dhcp4: true/; /addresses: .10.77/d; /routes:/d; /nameservers:/d", own)
    host.run("netplan", "apply")
    address = router.address_by_lease(host)
    host.wait_until_up()
    return address


def addresses(host: Host) -> str:
    return host.run("ip", "-o", "-4", "address", "show", "dev", host.spec.nics[0])


def assert_fixed(host: Host, address: str) -> None:
    """It alone, without an end, and still there when the lease would be over."""
    for _ in range(2):
        shown = addresses(host)
        assert f"inet {address}/24 " in shown and shown.count("inet ") == 1, shown
        assert "dynamic" not in shown and "valid_lft forever" in shown, shown
        assert "proto dhcp" not in host.run("ip", "-4", "route"), host.run("ip", "-4", "route")
        time.sleep(router.LEASE_S / 2 + 1)


@pytest.mark.parametrize("name", [STAYS, MOVES])
def test_an_address_from_the_router_becomes_a_fixed_one(
    name: str, trio: Cluster, leased: Mapping[str, str], tmp_path: Path
) -> None:
    host, person = trio[name], Person(trio, tmp_path)
    wanted = leased[name] if name == STAYS else host.spec.address
    today = None if name == STAYS else leased[name]
    person.writes({name: {"motley_address": wanted, "motley_current_address": today}})
    said = person.bootstraps(limit=name, phase="static_ip")
    assert f"{leased[name]} → {wanted}" in said.out, said.out
    assert_fixed(host, wanted)
    assert person.bootstraps(limit=name, phase="static_ip").changed() == {name: 0}
    said = person.types("undo", limit=name, phase="static_ip")
    assert said.rc == 0, said.out
    assert router.address_by_lease(host) == leased[name]
