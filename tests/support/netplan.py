"""A node with a card and Wi-Fi, and what becomes of its netplan files."""

from typing import Any

import yaml

from plugins.filter.plan_netplan import OWN_FILE, motley_netplan

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
BY_WIFI = {"reached_at": "192.168.1.24"}
THEIRS = "/etc/netplan/01.yaml"
MANAGER = "network: {version: 2, renderer: NetworkManager}"

Files = dict[str, str]


def planned(files: Files | str, params: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """One text is that of a file of the owner's. `own` has the settings in our file, `rest` what theirs has still."""
    node = {"nics": [NIC, WIFI], "has_netplan": True, "cloud_init": False} | more
    node["netplan"] = {THEIRS: files} if isinstance(files, str) else files
    plan = motley_netplan(node, PARAMS | (params or {}))
    written = plan.get("files", {})
    read = {path: yaml.safe_load(text) for path, text in written.items() if "network.d" not in path}
    devices = [of for section, of in read.get(OWN_FILE, {}).get("network", {}).items() if section != "version"]
    name, own = next(iter(devices[0].items())) if devices else ("", {})
    return plan | {"read": read, "name": name, "own": own, "rest": read.get(THEIRS, {}).get("network")}


def saved(name: str, uuid: str, match: str = '{name: "wlp2s0"}') -> Files:
    """As NetworkManager on Ubuntu saves a Wi-Fi connection."""
    text = f"""network:
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
    return {f"/etc/netplan/90-NM-{uuid}.yaml": text}


SAVED = saved("Home", "11") | saved("Work", "22") | saved("Inn", "33")


def radio(uuid: str, ssid: str, address: str = "192.168.1.24") -> list[dict[str, Any]]:
    return [NIC, {**WIFI, "network": {"uuid": uuid, "ssid": ssid}, "addresses": [f"{address}/24"]}]
