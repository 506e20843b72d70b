"""The plan of a node's netplan files: one card gets its address, everything else stays."""

from typing import Any

import pytest
import yaml

from plugins.filter.netplan import CLOUD_INIT, OWN_FILE, motley_netplan

NIC = {
    "name": "enp5s0",
    "mac": "3c:7c:3f:00:00:01",
    "permanent_mac": "3c:7c:3f:00:00:01",
    "wireless": False,
    "addresses": ["192.168.1.23/24"],
    "gateway": "192.168.1.1",
}
WIFI = {**NIC, "name": "wlp2s0", "mac": "3c:7c:3f:00:00:02", "wireless": True, "addresses": ["192.168.1.24/24"]}
WISH = {
    "address": "192.168.1.100",
    "prefix": 24,
    "gateway": "192.168.1.1",
    "dns": ["192.168.1.1"],
    "mac": "",
    "reached_at": "192.168.1.23",
}


def node(files: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"nics": [NIC, WIFI], "netplan": files, "has_netplan": True, "cloud_init": False, **more}


def planned(files: dict[str, str], wish: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    plan = motley_netplan(node(files, **more), WISH | (wish or {}))
    return plan | {
        "read": {path: yaml.safe_load(text) for path, text in plan.get("files", {}).items() if "network.d" not in path}
    }


def stanza(plan: dict[str, Any], section: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = plan["read"][OWN_FILE]["network"][section][name]
    return found


SERVER = """
network:
  version: 2
  ethernets:
    enp5s0: {dhcp4: true, dhcp6: true, mtu: 9000, wakeonlan: true}
    enp6s0: {dhcp4: true, optional: true}
"""


def test_the_card_moves_to_our_file_by_its_mac_and_the_other_card_stays() -> None:
    plan = planned({"/etc/netplan/50-cloud-init.yaml": SERVER}, cloud_init=True)
    own = stanza(plan, "ethernets", "enp5s0")
    assert own["match"] == {"macaddress": NIC["mac"]}
    assert own["addresses"] == ["192.168.1.100/24"] and own["dhcp4"] is False
    assert own["routes"] == [{"to": "default", "via": "192.168.1.1"}]
    assert (own["mtu"], own["wakeonlan"], own["dhcp6"]) == (9000, True, True)
    rest = plan["read"]["/etc/netplan/50-cloud-init.yaml"]["network"]
    assert rest["ethernets"] == {"enp6s0": {"dhcp4": True, "optional": True}}
    assert plan["read"][CLOUD_INIT] == {"network": {"config": "disabled"}}


def test_a_plan_applied_once_plans_the_same_again() -> None:
    first = planned({"/etc/netplan/50-cloud-init.yaml": SERVER})
    files = {path: text for path, text in first["files"].items() if path.startswith("/etc/netplan")}
    second = planned(files)
    assert second["files"] == {OWN_FILE: first["files"][OWN_FILE]}


def test_a_renamed_card_is_still_known_by_its_mac() -> None:
    first = planned({"/etc/netplan/50-cloud-init.yaml": SERVER})
    files = {path: text for path, text in first["files"].items() if path.startswith("/etc/netplan")}
    renamed = {**NIC, "name": "enp7s0", "addresses": ["192.168.1.100/24"]}
    second = planned(files, nics=[renamed, WIFI], wish={"reached_at": "192.168.1.100"})
    assert second["files"] == {OWN_FILE: first["files"][OWN_FILE]}


def test_ipv6_further_routes_and_search_domains_are_kept() -> None:
    text = """
network:
  ethernets:
    enp5s0:
      addresses: [192.168.1.50/24, "fd00::5/64"]
      gateway4: 192.168.1.254
      routes: [{to: 10.9.0.0/16, via: 192.168.1.2}, {to: 0.0.0.0/0, via: 192.168.1.254}]
      nameservers: {search: [home.arpa], addresses: [9.9.9.9]}
"""
    own = stanza(planned({"/etc/netplan/01.yaml": text}), "ethernets", "enp5s0")
    assert own["addresses"] == ["192.168.1.100/24", "fd00::5/64"]
    assert own["routes"] == [{"to": "default", "via": "192.168.1.1"}, {"to": "10.9.0.0/16", "via": "192.168.1.2"}]
    assert own["nameservers"] == {"addresses": ["192.168.1.1"], "search": ["home.arpa"]}
    assert "gateway4" not in own


def test_wifi_keeps_its_password() -> None:
    text = "network: {wifis: {wlp2s0: {dhcp4: true, access-points: {home: {password: hush}}}}}"
    own = stanza(planned({"/etc/netplan/01.yaml": text}, {"reached_at": "192.168.1.24"}), "wifis", "wlp2s0")
    assert own["access-points"] == {"home": {"password": "hush"}}
    assert own["addresses"] == ["192.168.1.100/24"] and "match" not in own


def test_wifi_outside_netplan_is_left_alone_with_a_way_out() -> None:
    plan = planned({}, {"reached_at": "192.168.1.24"})
    assert "Wi-Fi outside netplan" in plan["error"] and "in your router" in plan["fix"]


def test_a_machine_without_netplan_may_have_its_address_from_elsewhere() -> None:
    right = {**NIC, "addresses": ["192.168.1.100/24"]}
    at = {"reached_at": "192.168.1.100"}
    assert "left alone" in planned({}, at, has_netplan=False, nics=[right])["skip"]
    assert "motley_static_ip_manage: false" in planned({}, has_netplan=False)["fix"]


def test_network_manager_prefers_our_profile_to_its_own() -> None:
    text = "network: {version: 2, renderer: NetworkManager}"
    own = stanza(planned({"/etc/netplan/01-network-manager-all.yaml": text}), "ethernets", "enp5s0")
    assert own["networkmanager"] == {"passthrough": {"connection.autoconnect-priority": "100"}}


def test_a_pattern_for_all_cards_is_not_taken_away() -> None:
    text = 'network: {ethernets: {all: {match: {name: "en*"}, dhcp4: true}}}'
    plan = planned({"/etc/netplan/01.yaml": text})
    assert "/etc/netplan/01.yaml" not in plan["files"]


def test_a_card_without_a_burnt_in_mac_is_matched_by_the_one_it_has() -> None:
    plan = planned({}, nics=[{**NIC, "permanent_mac": ""}])
    assert (
        "MACAddress=3c:7c:3f:00:00:01" in plan["files"]["/etc/systemd/network/10-netplan-enp5s0.network.d/motley.conf"]
    )


@pytest.mark.parametrize(
    "wish", [{"mac": "3c:7c:3f:ff:ff:ff"}, {"reached_at": "192.168.1.99", "address": "192.168.1.98"}]
)
def test_a_card_that_is_not_there_is_named_with_those_that_are(wish: dict[str, Any]) -> None:
    plan = planned({}, wish)
    assert "3c:7c:3f:00:00:01" in plan["fix"]
