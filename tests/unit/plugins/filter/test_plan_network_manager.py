"""The plan of netplan files that NetworkManager has written: profiles, and of saved Wi-Fi networks the one in use."""

import pytest
import yaml

from plugins.filter.plan_netplan import OWN_FILE
from tests.support.netplan import BY_WIFI, MANAGER, SAVED, Files, planned, radio, saved

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
FIRST = {"connection.autoconnect-priority": "100"}
"""Network Manager takes our profile before its own."""


@pytest.mark.parametrize(
    ("files", "passed"),
    [
        (MANAGER, {}),
        (PROFILE, {"connection.timestamp": "1732260000", "connection.zone": "home", "ipv6.ip6-privacy": "-1"}),
        ({"/etc/netplan/90-NM-11.yaml": PROFILE, "/etc/netplan/90-NM-22.yaml": PROFILE.replace("11", "22")}, {}),
    ],
    ids=["no profile", "a profile", "two, of which neither passes its own on"],
)
def test_what_network_manager_alone_knows_of_a_profile_is_kept(files: Files | str, passed: Files) -> None:
    first = planned(files)
    assert first["own"]["networkmanager"] == {"passthrough": passed | FIRST}
    assert planned(first["files"])["files"][OWN_FILE] == first["files"][OWN_FILE]


@pytest.mark.parametrize(("uuid", "ssid"), [("11", "Home"), ("", "Home"), ("11", "")])
@pytest.mark.parametrize("address", ["192.168.1.100", "192.168.1.24"])
def test_only_the_wifi_network_in_use_gets_the_address(uuid: str, ssid: str, address: str) -> None:
    plan = planned(SAVED, BY_WIFI | {"address": address}, nics=radio(uuid, ssid))
    [(changed, text)] = plan["files"].items()
    was, now = (yaml.safe_load(one)["network"]["wifis"]["NM-11"] for one in (SAVED[changed], text))
    assert now["addresses"] == [f"{address}/24"] and now["dhcp4"] is False and plan["manager"]
    kept = ("match", "access-points", "networkmanager", "renderer")
    assert {key: now[key] for key in kept} == {key: was[key] for key in kept}
    at = {"reached_at": address, "address": address}
    assert not planned(SAVED | plan["files"], at, nics=radio(uuid, ssid, address))["files"]


def test_an_address_that_was_typed_into_network_managers_window_does_not_win_over_ours() -> None:
    """netplan passes on what it has no word for, such as an address with its gateway, and that is stronger."""
    own = {"connection.permissions": "", "ipv6.ip6-privacy": "-1"}
    typed = {"ipv4.address1": "192.168.1.24/24,192.168.1.1", "ipv4.method": "manual", "ipv4.dns-search": ""}
    home = yaml.safe_load(SAVED["/etc/netplan/90-NM-11.yaml"])
    network = home["network"]["wifis"]["NM-11"] | {"addresses": ["192.168.1.24/24"]}
    network["access-points"]["Home"]["networkmanager"]["passthrough"] = own | typed
    network["access-points"]["Guests"] = {}
    home["network"]["wifis"]["NM-11"] = network
    plan = planned({"/etc/netplan/90-NM-11.yaml": yaml.dump(home)}, BY_WIFI, nics=radio("11", "Home"))
    [text] = plan["files"].values()
    now = yaml.safe_load(text)["network"]["wifis"]["NM-11"]
    assert now["access-points"]["Home"]["networkmanager"] == {"uuid": "11", "name": "Home", "passthrough": own}
    assert (now["addresses"], now["access-points"]["Guests"]) == (["192.168.1.100/24"], {})


def test_a_wifi_network_that_is_saved_for_any_card_is_found_by_its_connection() -> None:
    plan = planned(saved("Home", "11", "{}") | saved("Home", "22", "{}"), BY_WIFI, nics=radio("22", "Home"))
    assert list(plan["files"]) == ["/etc/netplan/90-NM-22.yaml"]
