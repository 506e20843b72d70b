"""The plan of a node's netplan files: one card gets its address, everything else stays."""

from typing import Any

import pytest

from plugins.filter.plan_netplan import CLOUD_INIT, OWN_FILE
from tests.support.netplan import BY_WIFI, MANAGER, NIC, SAVED, THEIRS, Files, planned, radio, saved

SERVER = """
network:
  version: 2
  ethernets:
    enp5s0: {dhcp4: true, dhcp6: true, mtu: 9000, wakeonlan: true}
    enp6s0: {dhcp4: true, optional: true}
"""


def test_a_network_without_a_router_gets_no_default_route_and_one_that_is_there_stays() -> None:
    """Two PCs on one cable name no motley_gateway; whoever forgot it keeps the way out."""
    unnamed = {"gateway": "", "dns": []}
    assert planned(SERVER, unnamed)["own"]["routes"] == [{"to": "default", "via": "192.168.1.1"}]
    assert "routes" not in planned(SERVER, unnamed, nics=[NIC | {"gateway": ""}])["own"]


def test_the_card_moves_to_our_file_by_its_mac_and_the_other_card_stays() -> None:
    plan = planned(SERVER, cloud_init=True)
    assert plan["own"] == {
        "match": {"macaddress": NIC["mac"]},
        "dhcp6": True,
        "mtu": 9000,
        "wakeonlan": True,
        "dhcp4": False,
        "addresses": ["192.168.1.100/24"],
        "routes": [{"to": "default", "via": "192.168.1.1"}],
        "nameservers": {"addresses": ["192.168.1.1"]},
    }
    assert plan["rest"]["ethernets"] == {"enp6s0": {"dhcp4": True, "optional": True}}
    assert plan["read"][CLOUD_INIT] == {"network": {"config": "disabled"}}


def test_ipv6_further_routes_and_search_domains_are_kept() -> None:
    own = planned("""
network:
  ethernets:
    enp5s0:
      addresses: [192.168.1.50/24, "fd00::5/64"]
      gateway4: 192.168.1.254
      routes: [{to: 10.9.0.0/16, via: 192.168.1.2}, {to: 0.0.0.0/0, via: 192.168.1.254}]
      nameservers: {search: [home.arpa], addresses: [9.9.9.9]}
""")["own"]
    assert own["addresses"] == ["192.168.1.100/24", "fd00::5/64"]
    assert own["routes"] == [{"to": "default", "via": "192.168.1.1"}, {"to": "10.9.0.0/16", "via": "192.168.1.2"}]
    assert own["nameservers"] == {"addresses": ["192.168.1.1"], "search": ["home.arpa"]}
    assert "gateway4" not in own


def test_addresses_of_other_subnets_are_kept_and_the_one_that_it_leaves_is_not() -> None:
    nic = {**NIC, "addresses": ["172.16.0.9/16", "10.20.0.5/24"]}
    text = """
network:
  ethernets:
    enp5s0:
      addresses: [172.16.0.9/16, 10.20.0.5/24, 192.168.1.50/24, {10.30.0.5/32: {label: "enp5s0:vip"}}]
"""
    kept = ["10.20.0.5/24", {"10.30.0.5/32": {"label": "enp5s0:vip"}}]
    assert planned(text, {"reached_at": "172.16.0.9"}, nics=[nic])["own"]["addresses"] == ["192.168.1.100/24", *kept]


def test_a_default_route_of_another_table_is_kept_also_by_a_second_plan() -> None:
    first = planned("""
network:
  ethernets:
    enp5s0:
      dhcp4: true
      routes:
        - {to: default, via: 192.168.1.2, table: 100}
        - {to: default, via: 192.168.1.3, table: 254}
      routing-policy: [{from: 10.9.9.0/24, table: 100}]
""")
    other = {"to": "default", "via": "192.168.1.2", "table": 100}
    assert first["own"]["routes"] == [{"to": "default", "via": "192.168.1.1"}, other]
    assert first["own"]["routing-policy"] == [{"from": "10.9.9.0/24", "table": 100}]
    assert planned(first["files"])["files"] == {OWN_FILE: first["files"][OWN_FILE]}


def test_words_of_a_wifi_stay_what_netplan_takes_them_for_and_are_no_numbers_of_yaml() -> None:
    password = "correct horse battery staple: correct horse battery staple xyz"
    plan = planned(
        f"""
network:
  wifis:
    wlp2s0:
      dhcp4: yes
      access-points: {{on: {{password: 01234567}}, home: {{auth: {{key-management: psk, password: '{password}'}}}}}}
      routes: [{{to: 1:2::/64}}]
""",
        BY_WIFI,
    )
    own = plan["rest"]["wifis"]["wlp2s0"]
    home = {"auth": {"key-management": "psk", "password": password}}
    assert own["access-points"] == {"on": {"password": "01234567"}, "home": home}
    assert own["addresses"] == ["192.168.1.100/24"] and "match" not in own
    assert own["routes"][1] == {"to": "1:2::/64"}
    assert f"password: '{password}'\n" in plan["files"][THEIRS], "by its line the diff knows how much of it to hide"


def test_a_mac_without_quotes_is_one() -> None:
    text = "network: {ethernets: {lan: {match: {macaddress: 52:54:00:12:34:56}, set-name: enp5s0, mtu: 9000}}}"
    plan = planned(text, nics=[{**NIC, "mac": "52:54:00:12:34:56"}])
    assert (plan["name"], plan["own"]["mtu"], plan["rest"]) == ("lan", 9000, {})


def test_a_machine_without_netplan_may_have_its_address_from_elsewhere() -> None:
    right = {**NIC, "addresses": ["192.168.1.100/24"]}
    assert "left alone" in planned({}, {"reached_at": "192.168.1.100"}, has_netplan=False, nics=[right])["skip"]


def pattern(name: str, match: str = '{name: "en*"}') -> Files:
    """As Debian's cloud images come."""
    return {"/etc/netplan/90-default.yaml": f"network: {{ethernets: {{{name}: {{match: {match}, dhcp4: true}}}}}}"}


@pytest.mark.parametrize(
    ("files", "name"),
    [
        (pattern("all-en"), "00-enp5s0"),
        (pattern("all-en", "{name: [eth0, en*]}"), "00-enp5s0"),
        (pattern("all", "{}"), "00-enp5s0"),
        (pattern("enp5"), "00-enp5s0"),
        (pattern("enp5s0-too"), "00-enp5s0"),  # a hyphen sorts before the dot of .network
        (pattern("others"), "enp5s0"),
        (pattern("all-eth", '{name: "eth*"}'), "enp5s0"),
        (pattern("all", '{name: "en*", macaddress: "3c:7c:3f:00:00:09"}'), "enp5s0"),
    ],
)
def test_a_pattern_for_all_cards_stays_and_ours_comes_before_it(files: Files, name: str) -> None:
    """networkd takes the first file that matches, and a pattern's would give an address by DHCP."""
    card = {**NIC, "permanent_mac": ""}
    first = planned(files, nics=[card])
    assert first["nic"] == "enp5s0" and list(first["read"]) == [OWN_FILE]
    assert first["name"] == name and first["own"]["match"] == {"macaddress": NIC["mac"]}
    by_mac = first["files"][f"/etc/systemd/network/10-netplan-{name}.network.d/motley.conf"]
    assert "MACAddress=3c:7c:3f:00:00:01" in by_mac and "Kind=!" in by_mac, "it has no burnt-in one, and is no VLAN"
    both = {**files, OWN_FILE: first["files"][OWN_FILE]}
    moved = card | {"addresses": ["192.168.1.100/24"]}
    for again in (moved, moved | {"name": "enp7s0"}):
        assert planned(both, {"reached_at": "192.168.1.100"}, nics=[again])["files"] == first["files"]


@pytest.mark.parametrize(
    ("pattern", "other"),
    [
        (pattern("all-en"), MANAGER),  # it chooses by priority, not by name
        (
            pattern("all", "{driver: e1000*}"),
            "network: {ethernets: {enp5s0: {dhcp4: true}}, vlans: {v: {id: 10, link: enp5s0}}}",
        ),
    ],
    ids=["Network Manager's", "one that a VLAN names"],
)
def test_a_card_keeps_its_name_beside_a_pattern_where_that_must_be(pattern: Files, other: str) -> None:
    plan = planned(pattern | {THEIRS: other})
    assert plan["name"] == "enp5s0" and plan["own"]["match"] == {"macaddress": NIC["mac"]}


BURNT_IN = "3c:7c:3f:00:00:aa"


@pytest.mark.parametrize("by", [BURNT_IN, NIC["mac"]])
def test_a_card_with_a_cloned_mac_is_matched_by_its_burnt_in_one(by: str) -> None:
    """networkd and NetworkManager compare that one alone: by the other the card would be left without settings."""
    text = f"network: {{ethernets: {{lan: {{match: {{macaddress: '{by}'}}, macaddress: '{NIC['mac']}', mtu: 9000}}}}}}"
    plan = planned(text, nics=[NIC | {"permanent_mac": BURNT_IN}])
    assert plan["own"]["match"] == {"macaddress": BURNT_IN} and plan["mac"] == NIC["mac"]
    assert (plan["own"]["macaddress"], plan["own"]["mtu"], plan["rest"]) == (NIC["mac"], 9000, {})
    radio_by = [NIC, radio("11", "Home")[1] | {"permanent_mac": BURNT_IN}]
    assert planned(saved("Home", "11", f"{{macaddress: '{BURNT_IN}'}}"), BY_WIFI, nics=radio_by)["files"]


BRIDGE = {**NIC, "name": "br0", "permanent_mac": "", "lower": ["enp5s0"]}


@pytest.mark.parametrize(
    ("files", "params", "more", "error", "fix"),
    [
        ({}, BY_WIFI, {}, "Wi-Fi outside netplan", "in your router"),
        (saved("Home", "11") | saved("Home", "22"), BY_WIFI, {"nics": radio("", "Home")}, "Wi-Fi outside netplan", ""),
        (SAVED, BY_WIFI, {"nics": radio("", "")}, "Wi-Fi outside netplan", ""),
        (SAVED, BY_WIFI, {"nics": radio("44", "Home")}, "Wi-Fi outside netplan", ""),
        (SAVED, BY_WIFI, {"nics": radio("", "Café")}, "Wi-Fi outside netplan", ""),
        ({}, {}, {"has_netplan": False}, "enp5s0 is set up without netplan", "motley_static_ip_manage: false"),
        (SERVER, {}, {"nics": [NIC | {"addresses": []}, BRIDGE]}, "br0 is set up without netplan", ""),
        ({"/run/netplan/enp5s0.yaml": SERVER}, {}, {}, "/run/netplan/enp5s0.yaml", "to /etc/netplan"),
        ({}, {"mac": "3c:7c:3f:ff:ff:ff"}, {}, "no network card with MAC 3c:7c:3f:ff:ff:ff", "3c:7c:3f:00:00:01"),
        ({}, {"reached_at": "192.168.1.99", "address": "192.168.1.98"}, {}, "carries 192.168.1.99", NIC["mac"]),
    ],
    ids=[
        "Wi-Fi without settings",
        "two that may be the Wi-Fi network in use",
        "a Wi-Fi network that is not known",
        "another connection of that name",
        "a Wi-Fi network that is not saved",
        "no netplan",
        "a bridge of something else",
        "a file that each start writes",
        "a MAC that is not there",
        "an address that is not there",
    ],
)
def test_a_card_that_cannot_be_settled_is_left_alone_with_a_way_out(
    files: Files | str, params: dict[str, Any], more: dict[str, Any], error: str, fix: str
) -> None:
    plan = planned(files, params, **more)
    assert error in plan["error"] and fix in plan["fix"] and "files" not in plan


def test_a_renderer_of_a_section_goes_with_its_card() -> None:
    plan = planned("network: {ethernets: {renderer: NetworkManager, enp5s0: {dhcp4: true}, enp6s0: {dhcp4: true}}}")
    assert plan["manager"] and plan["own"]["renderer"] == "NetworkManager"
    assert plan["rest"]["ethernets"] == {"renderer": "NetworkManager", "enp6s0": {"dhcp4": True}}


NETWORKD = "network: {renderer: networkd}"


@pytest.mark.parametrize(
    ("files", "manager"),
    [
        ({"/usr/lib/netplan/00-network-manager-all.yaml": MANAGER}, True),
        ({"/usr/lib/netplan/00-network-manager-all.yaml": MANAGER, THEIRS: NETWORKD}, False),
        ({"/etc/netplan/00-a.yaml": NETWORKD, "/usr/lib/netplan/50.yaml": MANAGER}, True),
        ({"/usr/lib/netplan/50.yaml": MANAGER, "/etc/netplan/40.yaml": NETWORKD}, True),
    ],
)
def test_the_last_file_by_name_chooses_the_renderer_whatever_its_folder(files: Files, manager: bool) -> None:
    assert planned(files)["manager"] is manager


def test_a_vendors_file_is_shadowed_not_written_to() -> None:
    plan = planned({"/usr/lib/netplan/50-vendor.yaml": SERVER})
    assert set(plan["files"]) == {"/etc/netplan/50-vendor.yaml", OWN_FILE}


NAMED = "network: {ethernets: {enp5s0: {dhcp4: true, nameservers: {addresses: [9.9.9.9]}}}}"


@pytest.mark.parametrize(
    ("text", "wish", "uses", "gets"),
    [
        (SERVER, [], (["192.168.1.5", "fd00::53"], ["home.arpa"]), (["192.168.1.5", "fd00::53"], ["home.arpa"])),
        (SERVER, ["192.168.1.1"], (["192.168.1.5"], ["home.arpa"]), (["192.168.1.1"], ["home.arpa"])),
        (NAMED, [], (["9.9.9.9", "192.168.1.1"], []), (["9.9.9.9"], None)),
    ],
    ids=["those it uses", "those that are wished for", "those of its own settings"],
)
def test_which_name_servers_it_gets(
    text: str, wish: list[str], uses: tuple[list[str], list[str]], gets: tuple[list[str], list[str] | None]
) -> None:
    dns = {"enp5s0": {"servers": uses[0], "search": uses[1]}}
    named = planned(text, {"dns": wish}, dns=dns)["own"]["nameservers"]
    assert (named["addresses"], named.get("search")) == gets


VLAN = {
    **NIC,
    "name": "enp5s0.10",
    "permanent_mac": "",
    "addresses": ["10.9.0.5/24"],
    "gateway": "",
    "lower": ["enp5s0"],
}
TAGGED = """
network:
  ethernets: {lan: {match: {macaddress: "3c:7c:3f:00:00:01"}, set-name: enp5s0, dhcp4: true}}
  vlans: {enp5s0.10: {id: 10, link: lan, addresses: [10.9.0.5/24]}}
"""


@pytest.mark.parametrize("params", [{"mac": NIC["mac"]}, {"mac": NIC["mac"], "reached_at": "192.168.1.9"}])
def test_a_vlan_is_not_taken_for_the_card_whose_mac_it_has(params: dict[str, Any]) -> None:
    plan = planned(TAGGED, params, nics=[VLAN, NIC])
    assert (plan["nic"], plan["name"], plan["own"]["set-name"]) == ("enp5s0", "lan", "enp5s0")
    assert plan["rest"]["vlans"]["enp5s0.10"]["id"] == 10


def test_a_vlan_may_be_the_card_that_is_meant() -> None:
    plan = planned(TAGGED, {"reached_at": "10.9.0.5", "address": "10.9.0.9"}, nics=[NIC, VLAN])
    assert (plan["nic"], plan["name"], plan["own"]["link"]) == ("enp5s0.10", "enp5s0.10", "lan")
    assert "lan" in plan["rest"]["ethernets"]


def test_what_two_files_say_of_one_card_is_joined_as_netplan_does() -> None:
    plan = planned(
        {
            "/etc/netplan/00-installer-config.yaml": "{network: {ethernets: {enp5s0: {addresses: [10.9.0.1/24],"
            " routes: [{to: 10.0.0.0/8, via: 10.9.0.254}], nameservers: {search: [lan]}}}}}",
            "/etc/netplan/90-storage.yaml": "{network: {ethernets: {enp5s0: {addresses: [10.8.0.1/24], routes:,"
            " nameservers: {addresses: [10.9.0.2]}}}}}",
        },
        {"dns": []},
    )
    own = plan["own"]
    assert own["addresses"] == ["192.168.1.100/24", "10.9.0.1/24", "10.8.0.1/24"]
    assert own["nameservers"] == {"addresses": ["10.9.0.2"], "search": ["lan"]}
    assert {"to": "10.0.0.0/8", "via": "10.9.0.254"} in own["routes"]


def test_a_file_that_netplan_refuses_is_named() -> None:
    plan = planned({"/etc/netplan/01-netcfg.yaml": SERVER, "/etc/netplan/50-old.yaml": "- network\n"})
    why = "network is written in another form"
    assert plan["error"].startswith(f"its netplan file /etc/netplan/50-old.yaml cannot be read: {why}"), plan["error"]
    assert "netplan generate" in plan["fix"] and "files" not in plan
