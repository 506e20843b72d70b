"""A machine whose router gave it its address gets a fixed one: the same, or another."""

import time
from pathlib import Path

from lab.host import Host
from tests.support import one_node, pace, router
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, Cluster

ROUTER, STAYS, MOVES = "gpu-master", "gpu-worker-1", "gpu-worker-2"


def by_dhcp(host: Host) -> str:
    own = "/etc/netplan/00-installer-config.yaml"
    host.run("sed", "-i", "s/dhcp4: false/dhcp4: true/; /addresses: .10.77/d; /routes:/d; /nameservers:/d", own)
    host.run("netplan", "apply")
    # networkd now and then loses its lease right then: see `settle`, by which a node helps itself.
    mac = host.run("cat", f"/sys/class/net/{host.spec.nics[0]}/address").strip()
    host.run("python3", "-", "settle", mac, stdin=(REPOSITORY / "plugins/module_utils/motley/lan.py").read_text())
    address = router.address_by_lease(host)
    host.wait_until_up()
    return address


def addresses(host: Host) -> str:
    return host.run("ip", "-o", "-4", "address", "show", "dev", host.spec.nics[0])


def assert_fixed(host: Host, address: str) -> None:
    """It alone, and without an end."""
    shown, routes = addresses(host), host.run("ip", "-4", "route")
    assert f"inet {address}/24 " in shown and shown.count("inet ") == 1, shown
    assert "dynamic" not in shown and "valid_lft forever" in shown, shown
    assert "default" in routes and "proto dhcp" not in routes, routes


def test_an_address_from_the_router_becomes_a_fixed_one(trio: Cluster, tmp_path: Path) -> None:
    person, both = Person(trio, tmp_path), f"{STAYS},{MOVES}"
    router.hands_out_addresses(trio[ROUTER])
    leased = {name: by_dhcp(trio[name]) for name in (STAYS, MOVES)}
    wanted = {STAYS: leased[STAYS], MOVES: trio[MOVES].spec.address}
    person.writes(
        {name: {"motley_address": wanted[name], "motley_current_address": None} for name in [STAYS]}
        | {MOVES: {"motley_current_address": leased[MOVES]}},
        motley_static_ip_reconnect_s=pace.seconds(40),  # a lease may take longer than a fixed address
        motley_static_ip_rollback_s=pace.seconds(90),
    )
    said = person.bootstraps(limit=both, phase="static_ip")
    for name in (STAYS, MOVES):
        assert f"{leased[name]} → {wanted[name]}" in said.out, said.out
        assert_fixed(trio[name], wanted[name])
    time.sleep(router.LEASE_S + 1)
    for name in (STAYS, MOVES):
        assert_fixed(trio[name], wanted[name])
        again = one_node.planned(trio[name], wanted[name], reached_at=wanted[name])
        assert again.begins()["changed"] is False
    said = person.types("undo", limit=both, phase="static_ip")
    assert said.rc == 0, said.out
    assert {name: router.address_by_lease(trio[name]) for name in leased} == leased
    loses_its_lease(trio[MOVES])
    assert router.address_by_lease(trio[MOVES]) == leased[MOVES]


def loses_its_lease(host: Host) -> None:
    """As networkd does now and then when a card is set up twice in a row; what a node does against it."""
    nic, pid = host.spec.nics[0], ["systemctl", "show", "-P", "MainPID", "systemd-networkd"]
    mac, before = host.run("cat", f"/sys/class/net/{nic}/address").strip(), host.run(*pid)
    settle = ["python3", "/var/lib/motley/rollback/lan.py", "settle", mac]
    host.run(*settle)
    assert host.run(*pid) == before, "it has its address: nothing is to be done"
    host.run("ip", "-4", "address", "flush", "dev", nic)
    host.run(*settle)
    assert host.run(*pid) != before
