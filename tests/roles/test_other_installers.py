"""Networks as other installers leave them: a desktop's NetworkManager with its owner's Wi-Fi, a server's cloud-init, an
address that a router gave, by networkd or by NetworkManager.

A radio is nowhere in the lab: of Wi-Fi, only the settings can be seen to stay.
"""

import base64
import json
import time
from pathlib import Path

import pytest

from lab import lab as labs
from lab.host import Host
from tests.support import one_node, pace, router
from tests.support.bootstrap import Person
from tests.support.cluster import REPOSITORY, Cluster
from tests.support.secrets import traces

ROUTER, DESKTOP, SERVER = "gpu-master", "gpu-worker-1", "gpu-worker-2"
BOTH = f"{DESKTOP},{SERVER}"
PATIENT = {"motley_static_ip_reconnect_s": pace.seconds(40), "motley_static_ip_rollback_s": pace.seconds(90)}
"""A lease may take longer than a fixed address."""
WIFI_PASSWORD = "owners-secret"
SPARE_ADDRESS = "10.99.0.5/24"
OWNERS_PROFILE = "[connection]\nid=office\ntype=vpn\n\n[vpn]\nservice-type=org.freedesktop.NetworkManager.openvpn\n"


@pytest.fixture
def person(trio: Cluster, tmp_path: Path) -> Person:
    return Person.with_inventory(trio, tmp_path)


def as_a_desktop(host: Host) -> None:
    """What Ubuntu Desktop's installer leaves, and what its owner set up since."""
    lan, spare = host.spec.nics
    prefix = host.profile.network.prefixlen
    cards = {
        lan: {
            "addresses": [f"{host.spec.installed_address}/{prefix}"],
            "routes": [{"to": "default", "via": host.profile.gateway}],
        },
        spare: {"addresses": [SPARE_ADDRESS], "optional": True},
    }
    wifi = {"wlp9s0": {"dhcp4": True, "access-points": {"Home": {"password": WIFI_PASSWORD}}}}
    host.run("sh", "-ec", "apt-get -qq update; DEBIAN_FRONTEND=noninteractive apt-get -qq -y install network-manager")
    profile = "umask 077; cat > /etc/NetworkManager/system-connections/office.nmconnection"
    host.run("sh", "-ec", profile, stdin=OWNERS_PROFILE)
    host.run("systemctl", "disable", "--now", "--quiet", "systemd-networkd.socket", "systemd-networkd")
    writes_netplan(host, ethernets=cards, wifis=wifi)


def writes_netplan(host: Host, **devices: object) -> None:
    plan = {"network": {"version": 2, "renderer": "NetworkManager", **devices}}
    write = "umask 077; rm -f /etc/netplan/*; cat > /etc/netplan/01-network-manager-all.yaml"
    host.run("sh", "-ec", write, stdin=json.dumps(plan))
    host.run("netplan", "apply")
    host.run("nm-online", "-q", "-t", str(pace.seconds(20)))
    host.wait_until_up()


def as_a_server(host: Host) -> None:
    """What Ubuntu Server's installer leaves: its answers, which cloud-init wrote down for netplan."""
    installers = "/etc/netplan/00-installer-config.yaml"
    host.run("sh", "-ec", f"mv {installers} /etc/netplan/50-cloud-init.yaml; mkdir -p /etc/cloud/cloud.cfg.d")
    host.run("sh", "-c", "cat > /etc/cloud/cloud.cfg.d/90-installer-network.cfg", stdin="network: {version: 2}\n")
    host.run("netplan", "apply")
    host.wait_until_up()


def addresses(host: Host) -> dict[str, list[str]]:
    lines = host.run("ip", "-br", "-4", "address").splitlines()
    return {words[0].split("@")[0]: words[2:] for words in map(str.split, lines)}


def files(host: Host) -> str:
    everything = "cd /etc; find netplan systemd $(ls -d cloud NetworkManager 2>/dev/null) -type f -o -type l | sort"
    return host.run("sh", "-c", f"{everything} | xargs ls -l --time-style=+ ; {everything} | xargs tail -n +1")


def profiles(host: Host) -> list[str]:
    """All but those that NetworkManager makes up, in memory only, for cards that nobody has set up."""
    names = host.run("nmcli", "-t", "-f", "NAME", "connection").splitlines()
    return sorted(name for name in names if not name.startswith("Wired connection"))


def assert_has(host: Host, wanted: dict[str, list[str]]) -> None:
    """Its other cards may need a moment longer than the one through which it was met."""
    pace.until(lambda: addresses(host) == wanted, 30, lambda: f"{addresses(host)} instead of {wanted}")


def by_dhcp(host: Host) -> str:
    """A server whose router gives it its address."""
    own = "/etc/netplan/00-installer-config.yaml"
    host.run("sed", "-i", "s/dhcp4: false/dhcp4: true/; /addresses: .10.77/d; /routes:/d; /nameservers:/d", own)
    host.run("netplan", "apply")
    # networkd now and then loses its lease right then: see `settle`, by which a node helps itself.
    mac = host.run("cat", f"/sys/class/net/{host.spec.nics[0]}/address").strip()
    host.run("python3", "-", "settle", mac, stdin=(REPOSITORY / "plugins/module_utils/motley/lan.py").read_text())
    return has_lease(host)


def has_lease(host: Host) -> str:
    leased = router.address_by_lease(host)
    host.wait_until_up()
    return leased


def assert_fixed(host: Host, address: str) -> None:
    """It alone, and without an end; and the same plan finds nothing to do."""
    shown = host.run("ip", "-o", "-4", "address", "show", "dev", host.spec.nics[0])
    assert f"inet {address}/24 " in shown and shown.count("inet ") == 1, shown
    assert "dynamic" not in shown and "valid_lft forever" in shown, shown
    routes = host.run("ip", "-4", "route")
    assert "default" in routes and "proto dhcp" not in routes, routes
    assert one_node.planned(host, address, reached_at=address).begins()["changed"] is False


def test_a_fixed_address_and_a_leased_one_become_motleys_and_go_back_to_what_their_owner_had(person: Person) -> None:
    """A desktop with all that its owner set up; a server that keeps the address that its router gave it."""
    host, server = person.cluster[DESKTOP], person.cluster[SERVER]
    lan, spare = host.spec.nics
    as_a_desktop(host)
    before = {"lo": ["127.0.0.1/8"], lan: [f"{host.spec.installed_address}/24"], spare: [SPARE_ADDRESS]}
    assert_has(host, before)
    before_files, before_profiles = files(host), profiles(host)
    assert {"netplan-wlp9s0-Home", "office"} <= set(before_profiles)
    router.hands_out_addresses(person.cluster[ROUTER])
    leased = by_dhcp(server)

    wrong = one_node.planned(host, gateway="10.77.0.250")
    assert wrong.begins()["changed"]
    said = wrong.confirms()
    assert said["failed"] and "nobody answers at the gateway 10.77.0.250" in said["msg"], said
    assert wrong.goes_back()
    assert_has(host, before)

    person.writes({SERVER: {"motley_address": leased, "motley_current_address": None}}, **PATIENT)
    person.bootstraps(limit=BOTH, phase="static_ip")
    since = time.monotonic()
    assert_has(host, before | {lan: [f"{host.spec.address}/24"]})
    assert_fixed(host, host.spec.address)
    assert host.run("nmcli", "-g", "GENERAL.STATE", "device", "show", lan).startswith("100")
    assert {"netplan-wlp9s0-Home", "office"} <= set(profiles(host))
    assert WIFI_PASSWORD in host.run("cat", "/etc/netplan/01-network-manager-all.yaml")

    host.power_off()
    host.restore_power()
    host.wait_until_up()
    assert host.run("nm-online", "-q", "-t", str(pace.seconds(20))) == ""
    assert_has(host, before | {lan: [f"{host.spec.address}/24"]})
    time.sleep(max(0, since + router.LEASE_S + 1 - time.monotonic()))
    assert_fixed(server, leased)

    person.types("undo", limit=BOTH, phase="static_ip").went_well()
    assert_has(host, before)
    assert files(host) == before_files
    assert profiles(host) == before_profiles
    assert router.address_by_lease(server) == leased


def test_the_owners_wifi_password_is_in_its_file_alone(person: Person) -> None:
    """After the change, its way back and its undo above."""
    assert traces([person.cluster[DESKTOP]], WIFI_PASSWORD, person.folder.parent) == []


def test_who_asks_its_router_gets_another_fixed_address_and_keeps_its_name_servers(person: Person) -> None:
    """A desktop as its installer leaves it (netplan names no card, NetworkManager asks by a profile of its own), and a
    server."""
    host, server = person.cluster[DESKTOP], person.cluster[SERVER]
    name_server = router.answers_for_names(person.cluster[ROUTER])
    router.hands_out_addresses(person.cluster[ROUTER], name_server)
    writes_netplan(host)
    leased = {DESKTOP: has_lease(host), SERVER: by_dhcp(server)}
    assert host.run("getent", "ahostsv4", "pypi.org").startswith("198.51.100.7")
    profile = host.run("nmcli", "-g", "GENERAL.CONNECTION", "device", "show", host.spec.nics[0])
    assert profile.startswith("Wired connection"), profile

    unheard = one_node.planned(host, dns=("10.77.0.250",), reached_at=leased[DESKTOP])
    assert unheard.begins()["changed"]
    said = unheard.confirms()
    assert said["failed"] and "names do not resolve after the change" in said["msg"] and "motley_dns" in said["msg"]
    assert unheard.goes_back() and router.address_by_lease(host) == leased[DESKTOP]

    there = {name: {"motley_current_address": address} for name, address in leased.items()}
    person.writes(there, motley_dns=None, **PATIENT)
    done = person.bootstraps(limit=BOTH, phase="static_ip").out
    for machine in (host, server):
        assert f"{leased[machine.name]} → {machine.spec.address}" in done, done
        assert_fixed(machine, machine.spec.address)
    assert "names resolve" in done
    assert host.run("getent", "ahostsv4", "pypi.org").startswith("198.51.100.7")

    person.types("undo", limit=BOTH, phase="static_ip").went_well()
    assert {machine.name: router.address_by_lease(machine) for machine in (host, server)} == leased
    assert host.run("nmcli", "-g", "GENERAL.CONNECTION", "device", "show", host.spec.nics[0]) == profile
    loses_its_lease(server)
    assert router.address_by_lease(server) == leased[SERVER]


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


@pytest.mark.long  # tests/unit/plugins/filter/test_plan_netplan.py
def test_cloud_init_no_longer_writes_the_network_until_an_undo(person: Person) -> None:
    labs.reset(person.cluster.lab, [SERVER])
    host = person.cluster[SERVER]
    lan, spare = host.spec.nics
    as_a_server(host)
    before, before_files = {"lo": ["127.0.0.1/8"], lan: [f"{host.spec.installed_address}/24"]}, files(host)
    assert_has(host, before)

    person.bootstraps(limit=SERVER, phase="static_ip")
    assert_has(host, before | {lan: [f"{host.spec.address}/24"]})
    merged = (
        "import yaml, glob; print([yaml.safe_load(open(f)) for f in sorted(glob.glob('/etc/cloud/cloud.cfg.d/*'))])"
    )
    assert host.run("python3", "-c", merged).strip().endswith("{'network': {'config': 'disabled'}}]")
    theirs = host.run("cat", "/etc/netplan/50-cloud-init.yaml")
    assert spare in theirs and f"{lan}:" not in theirs
    assert one_node.planned(host, reached_at=host.spec.address).begins()["changed"] is False

    person.types("undo", limit=SERVER, phase="static_ip").went_well()
    assert_has(host, before)
    assert files(host) == before_files


LIVED_IN = (
    "127.0.0.1\tlocalhost\r\n127.0.1.1\tdebian printer\r\n\n# the owner's\t\r\n"
    "10.77.0.40 gpu-worker-2 oldname # sold\n::1\tip6-localhost"
)


@pytest.mark.long  # tests/unit/plugins/module_utils/motley/test_undo_record.py
def test_an_old_line_for_a_nodes_name_is_taken_out_and_comes_back_byte_for_byte(person: Person) -> None:
    host = person.cluster[ROUTER]
    host.run("sh", "-c", "cat > /etc/hosts", stdin=LIVED_IN)
    person.writes(motley_hostname_manage=False)
    person.bootstraps(limit=ROUTER, phase="hostname")
    named = {name: host.run("getent", "ahostsv4", name).split()[0] for name in ("gpu-worker-2", "oldname", "debian")}
    assert named == {"gpu-worker-2": "10.77.0.102", "oldname": "10.77.0.40", "debian": "127.0.1.1"}
    person.writes()
    person.bootstraps(limit=ROUTER, phase="hostname")
    assert "127.0.1.1" not in host.outcome("getent", "ahostsv4", "debian", "printer").stdout
    assert host.run("hostname").strip() == ROUTER
    assert person.bootstraps(limit=ROUTER, phase="hostname").changed() == {ROUTER: 0}
    person.types("undo", limit=ROUTER, phase="hostname").went_well()
    assert host.run("base64", "-w0", "/etc/hosts") == base64.b64encode(LIVED_IN.encode()).decode()
    assert host.run("hostname").strip() == "debian"
