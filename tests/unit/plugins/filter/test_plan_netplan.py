"""The plan of a node's netplan files: one card gets its address, everything else stays."""

from typing import Any

import pytest
import yaml

from plugins.filter.plan_netplan import CLOUD_INIT, OWN_FILE, motley_netplan

NIC = {
    "name": "enp5s0",
    "mac": "3c:7c:3f:00:00:01",
    "permanent_mac": "3c:7c:3f:00:00:01",
    "wireless": False,
    "addresses": ["192.168.1.23/24"],
    "gateway": "192.168.1.1",
}
WIFI = {**NIC, "name": "wlp2s0", "mac": "3c:7c:3f:00:00:02", "wireless": True, "addresses": ["192.168.1.24/24"]}
PARAMS = {
    "address": "192.168.1.100",
    "prefix": 24,
    "gateway": "192.168.1.1",
    "dns": ["192.168.1.1"],
    "mac": "",
    "reached_at": "192.168.1.23",
}


def node(files: dict[str, str], **more: Any) -> dict[str, Any]:
    return {"nics": [NIC, WIFI], "netplan": files, "has_netplan": True, "cloud_init": False, **more}


def planned(files: dict[str, str], params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    plan = motley_netplan(node(files, **more), PARAMS | (params or {}))
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


def test_a_network_without_a_router_gets_no_default_route_and_one_that_is_there_stays() -> None:
    """Two PCs on one cable name no motley_gateway; whoever forgot it keeps the way out."""
    unnamed = {"gateway": "", "dns": []}
    kept = stanza(planned({"/etc/netplan/50-cloud-init.yaml": SERVER}, unnamed), "ethernets", "enp5s0")
    assert kept["routes"] == [{"to": "default", "via": "192.168.1.1"}]
    alone = {"nics": [NIC | {"gateway": ""}, WIFI]}
    assert "routes" not in stanza(
        planned({"/etc/netplan/50-cloud-init.yaml": SERVER}, unnamed, **alone), "ethernets", "enp5s0"
    )


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
    second = planned(files, nics=[renamed, WIFI], params={"reached_at": "192.168.1.100"})
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


def test_addresses_of_other_subnets_are_kept_and_the_one_that_it_leaves_is_not() -> None:
    text = """
network:
  ethernets:
    enp5s0:
      addresses: [172.16.0.9/16, 10.20.0.5/24, 192.168.1.50/24, {10.30.0.5/32: {label: "enp5s0:vip"}}]
"""
    nic = {**NIC, "addresses": ["172.16.0.9/16", "10.20.0.5/24"]}
    plan = planned({"/etc/netplan/01.yaml": text}, {"reached_at": "172.16.0.9"}, nics=[nic])
    kept = ["10.20.0.5/24", {"10.30.0.5/32": {"label": "enp5s0:vip"}}]
    assert stanza(plan, "ethernets", "enp5s0")["addresses"] == ["192.168.1.100/24", *kept]


def test_a_default_route_of_another_table_is_kept() -> None:
    text = """
network:
  ethernets:
    enp5s0:
      dhcp4: true
      routes:
        - {to: default, via: 192.168.1.2, table: 100}
        - {to: default, via: 192.168.1.3, table: 254}
      routing-policy: [{from: 10.9.9.0/24, table: 100}]
"""
    first = planned({"/etc/netplan/01.yaml": text})
    own = stanza(first, "ethernets", "enp5s0")
    other = {"to": "default", "via": "192.168.1.2", "table": 100}
    assert own["routes"] == [{"to": "default", "via": "192.168.1.1"}, other]
    assert own["routing-policy"] == [{"from": "10.9.9.0/24", "table": 100}]
    assert planned(first["files"])["files"] == {OWN_FILE: first["files"][OWN_FILE]}


def test_wifi_keeps_its_password() -> None:
    text = "network: {wifis: {wlp2s0: {dhcp4: true, access-points: {home: {password: hush}}}}}"
    plan = planned({"/etc/netplan/01.yaml": text}, {"reached_at": "192.168.1.24"})
    own = plan["read"]["/etc/netplan/01.yaml"]["network"]["wifis"]["wlp2s0"]
    assert own["access-points"] == {"home": {"password": "hush"}}
    assert own["addresses"] == ["192.168.1.100/24"] and "match" not in own


def test_a_long_password_stays_on_its_line() -> None:
    """By which the diff of the change knows how much of it to hide."""
    password = "correct horse battery staple: correct horse battery staple xyz"
    point = f"home: {{auth: {{key-management: psk, password: '{password}'}}}}"
    text = f"network: {{wifis: {{wlp2s0: {{dhcp4: true, access-points: {{{point}}}}}}}}}"
    plan = planned({"/etc/netplan/01.yaml": text}, {"reached_at": "192.168.1.24"})
    assert f"password: '{password}'\n" in plan["files"]["/etc/netplan/01.yaml"]


def test_words_are_what_netplan_takes_them_for_and_no_numbers_of_yaml() -> None:
    text = (
        "network: {wifis: {wlp2s0: {dhcp4: yes, access-points: {on: {password: 01234567}}, routes: [{to: 1:2::/64}]}}}"
    )
    plan = planned({"/etc/netplan/01.yaml": text}, {"reached_at": "192.168.1.24"})
    own = plan["read"]["/etc/netplan/01.yaml"]["network"]["wifis"]["wlp2s0"]
    assert own["access-points"] == {"on": {"password": "01234567"}}
    assert own["routes"][1] == {"to": "1:2::/64"}


def test_a_mac_without_quotes_is_one() -> None:
    card = {**NIC, "mac": "52:54:00:12:34:56"}
    text = "network: {ethernets: {lan: {match: {macaddress: 52:54:00:12:34:56}, set-name: enp5s0, mtu: 9000}}}"
    plan = planned({"/etc/netplan/01.yaml": text}, nics=[card])
    assert stanza(plan, "ethernets", "lan")["mtu"] == 9000
    assert not plan["read"]["/etc/netplan/01.yaml"]["network"]


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


PROFILE = """
network:
  version: 2
  ethernets:
    NM-11:
      renderer: NetworkManager
      match: {name: enp5s0}
      addresses: [192.168.1.23/24]
      dhcp6: true
      networkmanager:
        uuid: "11"
        name: Wired 1
        passthrough:
          connection.timestamp: "1732260000"
          connection.zone: home
          connection.autoconnect: "false"
          connection.autoconnect-priority: "7"
          connection.interface-name: enp5s0
          connection.permissions: "user:ada:;"
          ethernet.mac-address-blacklist: "3c:7c:3f:00:00:01"
          match.path: pci-0000:05:00.0
          ethernet.cloned-mac-address: random
          ipv4.method: manual
          ipv4.address1: 192.168.1.23/24,192.168.1.1
          ipv6.ip6-privacy: "-1"
"""


def test_what_network_manager_alone_knows_of_a_profile_is_kept() -> None:
    first = planned({"/etc/netplan/90-NM-11.yaml": PROFILE})
    own = stanza(first, "ethernets", "NM-11")
    assert own["networkmanager"] == {
        "passthrough": {
            "connection.timestamp": "1732260000",
            "connection.zone": "home",
            "ipv6.ip6-privacy": "-1",
            "connection.autoconnect-priority": "100",
        }
    }
    assert planned(first["files"])["files"][OWN_FILE] == first["files"][OWN_FILE]


def test_of_two_profiles_of_a_card_neither_passes_its_own_on() -> None:
    files = {"/etc/netplan/90-NM-11.yaml": PROFILE, "/etc/netplan/90-NM-22.yaml": PROFILE.replace("11", "22")}
    plan = planned(files)
    (own,) = plan["read"][OWN_FILE]["network"]["ethernets"].values()
    assert own["networkmanager"] == {"passthrough": {"connection.autoconnect-priority": "100"}}


def pattern(name: str, match: str = '{name: "en*"}') -> dict[str, str]:
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
def test_a_pattern_for_all_cards_stays_and_ours_comes_before_it(files: dict[str, str], name: str) -> None:
    """networkd takes the first file that matches, and a pattern's would give an address by DHCP."""
    first = planned(files, nics=[{**NIC, "permanent_mac": ""}])
    assert first["nic"] == "enp5s0" and list(first["read"]) == [OWN_FILE]
    assert stanza(first, "ethernets", name)["match"] == {"macaddress": NIC["mac"]}
    assert f"/etc/systemd/network/10-netplan-{name}.network.d/motley.conf" in first["files"]
    renamed = {**NIC, "permanent_mac": "", "name": "enp7s0", "addresses": ["192.168.1.100/24"]}
    both = {**files, OWN_FILE: first["files"][OWN_FILE]}
    for card in ({**renamed, "name": "enp5s0"}, renamed):
        second = planned(both, {"reached_at": "192.168.1.100"}, nics=[card])
        assert second["files"] == first["files"]


def test_network_manager_chooses_by_priority_not_by_name() -> None:
    plan = planned({**pattern("all-en"), "/etc/netplan/01-network-manager-all.yaml": MANAGER})
    assert stanza(plan, "ethernets", "enp5s0")["match"] == {"macaddress": NIC["mac"]}


def test_a_card_that_a_vlan_names_keeps_its_name() -> None:
    text = "network: {ethernets: {enp5s0: {dhcp4: true}}, vlans: {v: {id: 10, link: enp5s0}}}"
    plan = planned({**pattern("all", "{driver: e1000*}"), "/etc/netplan/01.yaml": text})
    assert list(plan["read"][OWN_FILE]["network"]["ethernets"]) == ["enp5s0"]


def test_a_card_without_a_burnt_in_mac_is_matched_by_the_one_it_has() -> None:
    plan = planned({}, nics=[{**NIC, "permanent_mac": ""}])
    assert (
        "MACAddress=3c:7c:3f:00:00:01" in plan["files"]["/etc/systemd/network/10-netplan-enp5s0.network.d/motley.conf"]
    )


@pytest.mark.parametrize(
    "params", [{"mac": "3c:7c:3f:ff:ff:ff"}, {"reached_at": "192.168.1.99", "address": "192.168.1.98"}]
)
def test_a_card_that_is_not_there_is_named_with_those_that_are(params: dict[str, Any]) -> None:
    plan = planned({}, params)
    assert "3c:7c:3f:00:00:01" in plan["fix"]


def saved(name: str, uuid: str, match: str = '{name: "wlp2s0"}') -> str:
    """As NetworkManager on Ubuntu saves a Wi-Fi connection."""
    return f"""network:
  version: 2
  wifis:
    NM-{uuid}:
      renderer: NetworkManager
      match: {match}
      dhcp4: true
      access-points:
        "{name}":
          auth: {{key-management: psk, password: "of {name}"}}
          networkmanager: {{uuid: "{uuid}", name: "{name}"}}
      networkmanager: {{uuid: "{uuid}", name: "{name}"}}
"""


SAVED = {
    f"/etc/netplan/90-NM-{uuid}.yaml": saved(name, uuid)
    for name, uuid in [("Home", "11"), ("Work", "22"), ("Inn", "33")]
}
IN_USE = {"uuid": "11", "ssid": "Home"}


@pytest.mark.parametrize("network", [IN_USE, {"uuid": "", "ssid": "Home"}, {"uuid": "11", "ssid": ""}])
@pytest.mark.parametrize("address", ["192.168.1.100", "192.168.1.24"])
def test_only_the_wifi_network_in_use_gets_the_address(network: dict[str, str], address: str) -> None:
    radio = {**WIFI, "network": network}
    plan = planned(SAVED, {"reached_at": "192.168.1.24", "address": address}, nics=[NIC, radio])
    changed = "/etc/netplan/90-NM-11.yaml"
    assert list(plan["files"]) == [changed]
    was, now = (yaml.safe_load(text)["network"]["wifis"]["NM-11"] for text in (SAVED[changed], plan["files"][changed]))
    assert now["addresses"] == [f"{address}/24"] and now["dhcp4"] is False
    kept = ("match", "access-points", "networkmanager", "renderer")
    assert {key: now[key] for key in kept} == {key: was[key] for key in kept}
    assert (
        plan["manager"]
        and not planned(
            {**SAVED, **plan["files"]},
            {"reached_at": address, "address": address},
            nics=[NIC, {**radio, "addresses": [f"{address}/24"]}],
        )["files"]
    )


def test_a_wifi_network_that_is_saved_for_any_card_is_found_by_its_connection() -> None:
    files = {
        "/etc/netplan/90-NM-11.yaml": saved("Home", "11", "{}"),
        "/etc/netplan/90-NM-22.yaml": saved("Home", "22", "{}"),
    }
    plan = planned(
        files, {"reached_at": "192.168.1.24"}, nics=[NIC, {**WIFI, "network": {"uuid": "22", "ssid": "Home"}}]
    )
    assert list(plan["files"]) == ["/etc/netplan/90-NM-22.yaml"]


def test_of_two_that_may_be_the_wifi_network_in_use_none_is_taken() -> None:
    files = {f"/etc/netplan/90-NM-{uuid}.yaml": saved("Home", uuid) for uuid in ("11", "22")}
    radio = {**WIFI, "network": {"uuid": "", "ssid": "Home"}}
    assert "Wi-Fi outside netplan" in planned(files, {"reached_at": "192.168.1.24"}, nics=[NIC, radio])["error"]


@pytest.mark.parametrize(
    "network", [{"uuid": "", "ssid": ""}, {"uuid": "44", "ssid": "Home"}, {"uuid": "", "ssid": "Café"}]
)
def test_a_wifi_network_that_netplan_does_not_have_is_not_guessed(network: dict[str, str]) -> None:
    plan = planned(SAVED, {"reached_at": "192.168.1.24"}, nics=[NIC, {**WIFI, "network": network}])
    assert "Wi-Fi outside netplan" in plan["error"] and "files" not in plan


def test_a_renderer_of_a_section_goes_with_its_card() -> None:
    text = "network: {ethernets: {renderer: NetworkManager, enp5s0: {dhcp4: true}, enp6s0: {dhcp4: true}}}"
    plan = planned({"/etc/netplan/01.yaml": text})
    assert plan["manager"] and stanza(plan, "ethernets", "enp5s0")["renderer"] == "NetworkManager"
    assert plan["read"]["/etc/netplan/01.yaml"]["network"]["ethernets"] == {
        "renderer": "NetworkManager",
        "enp6s0": {"dhcp4": True},
    }


VENDOR = "/usr/lib/netplan/00-network-manager-all.yaml"
MANAGER = "network: {version: 2, renderer: NetworkManager}"


def test_the_last_file_by_name_chooses_the_renderer_whatever_its_folder() -> None:
    networkd = "network: {renderer: networkd}"
    assert planned({VENDOR: MANAGER})["manager"]
    assert not planned({VENDOR: MANAGER, "/etc/netplan/01.yaml": networkd})["manager"]
    assert planned({"/etc/netplan/00-a.yaml": networkd, "/usr/lib/netplan/50.yaml": MANAGER})["manager"]
    assert planned({"/usr/lib/netplan/50.yaml": MANAGER, "/etc/netplan/40.yaml": networkd})["manager"]


def test_a_vendors_file_is_shadowed_not_written_to() -> None:
    plan = planned({"/usr/lib/netplan/50-vendor.yaml": SERVER})
    assert set(plan["files"]) == {"/etc/netplan/50-vendor.yaml", OWN_FILE}


def test_a_card_of_a_file_that_each_start_writes_is_refused() -> None:
    plan = planned({"/run/netplan/enp5s0.yaml": SERVER})
    assert "/run/netplan/enp5s0.yaml" in plan["error"] and "files" not in plan


def test_without_a_wish_the_node_keeps_the_name_servers_it_uses() -> None:
    uses = {"servers": ["192.168.1.5", "fd00::53"], "search": ["home.arpa"]}
    own = stanza(planned({"/etc/netplan/01.yaml": SERVER}, {"dns": []}, dns={"enp5s0": uses}), "ethernets", "enp5s0")
    assert own["nameservers"] == {"addresses": ["192.168.1.5", "fd00::53"], "search": ["home.arpa"]}
    settled = stanza(planned({"/etc/netplan/01.yaml": SERVER}, dns={"enp5s0": uses}), "ethernets", "enp5s0")
    assert settled["nameservers"] == {"addresses": ["192.168.1.1"], "search": ["home.arpa"]}


def test_without_a_wish_the_name_servers_of_its_own_settings_stay() -> None:
    text = "network: {ethernets: {enp5s0: {dhcp4: true, nameservers: {addresses: [9.9.9.9]}}}}"
    uses = {"enp5s0": {"servers": ["9.9.9.9", "192.168.1.1"], "search": []}}
    own = stanza(planned({"/etc/netplan/01.yaml": text}, {"dns": []}, dns=uses), "ethernets", "enp5s0")
    assert own["nameservers"] == {"addresses": ["9.9.9.9"]}


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


def test_a_vlan_is_not_taken_for_the_card_whose_mac_it_has() -> None:
    files = {"/etc/netplan/01.yaml": TAGGED}
    for params in ({"mac": NIC["mac"]}, {"mac": NIC["mac"], "reached_at": "192.168.1.9"}):
        plan = planned(files, params, nics=[VLAN, NIC])
        assert plan["nic"] == "enp5s0" and stanza(plan, "ethernets", "lan")["set-name"] == "enp5s0"
        assert plan["read"]["/etc/netplan/01.yaml"]["network"]["vlans"]["enp5s0.10"]["id"] == 10
    vlan = planned(files, {"reached_at": "10.9.0.5", "address": "10.9.0.9"}, nics=[NIC, VLAN])
    assert vlan["nic"] == "enp5s0.10" and stanza(vlan, "vlans", "enp5s0.10")["link"] == "lan"
    assert "lan" in vlan["read"]["/etc/netplan/01.yaml"]["network"]["ethernets"]


def test_a_bridge_that_netplan_does_not_have_is_left_alone() -> None:
    bridge = {**NIC, "name": "br0", "permanent_mac": "", "lower": ["enp5s0"]}
    plan = planned({"/etc/netplan/01.yaml": SERVER}, nics=[{**NIC, "addresses": []}, bridge])
    assert "br0 is set up without netplan" in plan["error"]


def test_a_card_without_a_burnt_in_mac_is_not_its_vlan() -> None:
    plan = planned({}, nics=[{**NIC, "permanent_mac": ""}])
    assert "Kind=!" in plan["files"]["/etc/systemd/network/10-netplan-enp5s0.network.d/motley.conf"]


def by_ifupdown(*stanzas: dict[str, Any], more: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"lo": [], "enp5s0": list(stanzas), **(more or {})}


STATIC = {
    "family": "inet",
    "method": "static",
    "options": [
        ["address", "192.168.1.23/24"],
        ["gateway", "192.168.1.1"],
        ["dns-nameservers", "192.168.1.5"],
        ["mtu", "9000"],
    ],
}
ADOPT = {"adopt": "netplan"}


@pytest.mark.parametrize("has_netplan", [True, False])
def test_a_card_that_ifupdown_has_is_taken_over_with_consent(has_netplan: bool) -> None:
    auto6 = {"family": "inet6", "method": "auto", "options": []}
    second = {**STATIC, "options": [["address", "10.20.0.5"], ["netmask", "255.255.0.0"]]}
    more = {"has_netplan": has_netplan, "ifupdown": by_ifupdown(STATIC, second, auto6), "resolv_conf": "file"}
    refused = planned({}, **more)
    assert (
        "enp5s0 is set up without netplan" in refused["error"] and "motley_static_ip_adopt: netplan" in refused["fix"]
    )
    plan = planned({}, ADOPT | {"dns": []}, dns={"enp5s0": {"servers": ["192.168.1.5"], "search": ["home"]}}, **more)
    own = stanza(plan, "ethernets", "enp5s0")
    assert own["addresses"] == ["192.168.1.100/24", "10.20.0.5/16"] and own["mtu"] == 9000
    assert own["nameservers"] == {"addresses": ["192.168.1.5"], "search": ["home"]}
    assert "/etc/resolv.conf" not in plan["files"]
    settled = planned(
        {}, ADOPT | {"dns": ["9.9.9.9"]}, dns={"enp5s0": {"servers": ["1.1.1.1"], "search": ["home"]}}, **more
    )
    assert "nameserver 9.9.9.9\nsearch home\n" in settled["files"]["/etc/resolv.conf"]
    assert plan["adopts"] and plan["install"] == ([] if has_netplan else ["netplan.io"])


@pytest.mark.parametrize(
    ("stanza", "more", "word"),
    [
        ({**STATIC, "options": [["post-up", "/usr/local/bin/wake"]]}, {}, "post-up"),
        ({**STATIC, "options": [["bridge_ports", "enp6s0"]]}, {}, "bridge_ports"),
        ({**STATIC, "method": "ppp"}, {}, "ppp"),
        (STATIC, {"enp5s0.10": []}, "enp5s0.10"),
        (STATIC, {"enp5s0:1": []}, "enp5s0:1"),
        (STATIC, {"br0": [{"family": "inet", "method": "static", "options": [["bridge_ports", "enp5s0"]]}]}, "br0"),
    ],
)
def test_what_netplan_could_not_do_as_well_is_not_taken_over(
    stanza: dict[str, Any], more: dict[str, Any], word: str
) -> None:
    plan = planned({}, ADOPT, has_netplan=False, ifupdown=by_ifupdown(stanza, more=more))
    assert (
        "enp5s0 is set up without netplan" in plan["error"]
        and word in plan["error"]
        and "in your router" in plan["fix"]
    )


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
    own = stanza(plan, "ethernets", "enp5s0")
    assert own["addresses"] == ["192.168.1.100/24", "10.9.0.1/24", "10.8.0.1/24"]
    assert own["nameservers"] == {"addresses": ["10.9.0.2"], "search": ["lan"]}
    assert {"to": "10.0.0.0/8", "via": "10.9.0.254"} in own["routes"]
