"""Plans a node's netplan files: one card gets its fixed address, everything else stays as it is. Pure.

The card's settings move to a file of our own, matched by the card's MAC, so that a renamed card keeps its address.
They are taken out of the other files because netplan joins the address lists of all files.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import json
from typing import Any

import yaml

OWN_FILE = "/etc/netplan/60-motley.yaml"
CLOUD_INIT = "/etc/cloud/cloud.cfg.d/99-motley-network.cfg"
HEADER = "# Written by Motley; the files before it are kept in /var/lib/motley/before/static_ip.\n"
SECTIONS = ("ethernets", "wifis", "bonds", "bridges", "vlans")
REPLACED = ("dhcp4", "dhcp4-overrides", "gateway4", "addresses", "routes", "nameservers", "match")


def motley_netplan(node: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any]:
    """Which card, and which files it takes; or `error` and `fix`, or `skip` with the reason to leave it alone.

    `node` is node_report's; `wish` has address, prefix, gateway, dns, mac (may be empty) and reached_at.
    """
    nic = find_nic(node["nics"], wish)
    if nic is None:
        return _no_card(node, wish)
    own = f"{wish['address']}/{wish['prefix']}"
    documents = {path: yaml.safe_load(text) or {} for path, text in node["netplan"].items()}
    section, name, stanza = take_out(documents, nic)
    unmanaged = not node["has_netplan"] or (nic["wireless"] and not stanza)
    if unmanaged and own in nic["addresses"]:
        return {"skip": f"{nic['name']} has {wish['address']} from elsewhere than netplan; left alone"}
    if unmanaged:
        how = "Wi-Fi outside netplan" if nic["wireless"] else "without netplan"
        fix = f"reserve {wish['address']} for {nic['mac']} in your router and set motley_static_ip_manage: false for it"
        return {"error": f"its network card {nic['name']} is set up {how}", "fix": fix}
    manager = renderer(documents, stanza) == "NetworkManager"
    files = {path: _dump(documents[path]) for path in documents if documents[path] != _load(node["netplan"][path])}
    files[OWN_FILE] = _dump(
        {"network": {"version": 2, section: {name: with_address(stanza, section, nic, wish, manager)}}}
    )
    if not nic["permanent_mac"] and section == "ethernets" and not manager:
        # netplan asks networkd for the burnt-in MAC; a virtual card has none.
        path = f"/etc/systemd/network/10-netplan-{name}.network.d/motley.conf"
        files[path] = f"{HEADER}[Match]\nPermanentMACAddress=\nMACAddress={nic['mac']}\n"
    if node["cloud_init"]:
        files[CLOUD_INIT] = f"{HEADER}network: {{config: disabled}}\n"
    return {"nic": nic["name"], "mac": nic["mac"], "address": own, "manager": manager, "files": files}


def find_nic(nics: list[dict[str, Any]], wish: dict[str, Any]) -> dict[str, Any] | None:
    """By MAC where one is given; else the card through which we talk to the node; else the one that has the address."""
    if wish["mac"]:
        return next((nic for nic in nics if nic["mac"].lower() == wish["mac"].lower()), None)
    for address in (wish["reached_at"], wish["address"]):
        for nic in nics:
            if any(own.split("/")[0] == address for own in nic["addresses"]):
                return nic
    return None


def _no_card(node: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any]:
    cards = ", ".join(f"{nic['name']} {nic['mac']}" for nic in node["nics"]) or "none"
    if wish["mac"]:
        return {
            "error": f"it has no network card with MAC {wish['mac']}",
            "fix": f"correct motley_mac; its cards: {cards}",
        }
    fix = f"name the card: motley_mac: one of {cards}"
    return {"error": f"no network card of it carries {wish['reached_at']}", "fix": fix}


def take_out(documents: dict[str, Any], nic: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Remove the card's settings from all files; returns (section, id, settings joined in netplan's order)."""
    section, name, joined = "wifis" if nic["wireless"] else "ethernets", nic["name"], {}
    for path, document in documents.items():
        network = dict(document.get("network") or {})
        for kind in SECTIONS:
            devices = dict(network.get(kind) or {})
            for device in [device for device, stanza in devices.items() if _is_card(device, stanza or {}, nic, kind)]:
                section, name, joined = kind, device, {**joined, **(devices.pop(device) or {})}
                network = {**network, kind: devices}
            if kind in network and not devices:
                del network[kind]
        if network != document.get("network"):
            documents[path] = {**document, "network": network}
    return section, name, joined


def _is_card(device: str, stanza: dict[str, Any], nic: dict[str, Any], section: str) -> bool:
    match = stanza.get("match") or {}
    if section not in ("ethernets", "wifis") or "match" not in stanza:
        return device == nic["name"]
    if "macaddress" in match:
        return str(match["macaddress"]).lower() == nic["mac"].lower()
    names = match.get("name") or []
    # A pattern such as en* stands for other cards as well: it is not this card's own.
    return any(
        fnmatch.fnmatch(nic["name"], pattern) for pattern in ([names] if isinstance(names, str) else names)
    ) and (names == nic["name"] or names == [nic["name"]])


def renderer(documents: dict[str, Any], stanza: dict[str, Any]) -> str:
    """networkd, unless the card or (in the last file that says so) the whole machine is NetworkManager's."""
    named = [str((document.get("network") or {}).get("renderer", "")) for document in documents.values()]
    return str(stanza.get("renderer") or next((name for name in reversed(named) if name), "networkd"))


def with_address(
    stanza: dict[str, Any], section: str, nic: dict[str, Any], wish: dict[str, Any], manager: bool
) -> dict[str, Any]:
    """The card's settings with the fixed address; IPv6, Wi-Fi passwords, MTU and further routes stay."""
    kept = {key: value for key, value in stanza.items() if key not in REPLACED}
    others = [address for address in stanza.get("addresses", []) if _is_ipv6(address)]
    routes = [route for route in stanza.get("routes", []) if not _is_default(route)]
    search = (stanza.get("nameservers") or {}).get("search")
    nameservers = {"addresses": list(wish["dns"])} | ({"search": search} if search else {})
    if section == "ethernets":
        kept = {"match": {"macaddress": nic["mac"]}, **kept}
        if manager:  # before any profile that NetworkManager made by itself for every wired card
            kept["networkmanager"] = {"passthrough": {"connection.autoconnect-priority": "100"}}
    return {
        **kept,
        "dhcp4": False,
        "addresses": [f"{wish['address']}/{wish['prefix']}", *others],
        "routes": [{"to": "default", "via": wish["gateway"]}, *routes],
        **({"nameservers": nameservers} if wish["dns"] or search else {}),
    }


def _is_ipv6(address: Any) -> bool:
    text = next(iter(address)) if isinstance(address, dict) else str(address)
    return ipaddress.ip_interface(text).version == 6


def _is_default(route: dict[str, Any]) -> bool:
    return str(route.get("to")) in ("default", "0.0.0.0/0", "0/0") and ":" not in str(route.get("via", ""))


def _load(text: str) -> Any:
    return yaml.safe_load(text) or {}


def _dump(document: dict[str, Any]) -> str:
    return HEADER + str(yaml.safe_dump(document, sort_keys=False, default_flow_style=False))


def motley_leaving(names: list[str], hostvars: Any) -> list[str]:
    """MACs of the nodes that are about to give up their present address: theirs may be taken over."""
    macs = []
    for name in names:
        node = hostvars[name]
        if "motley_preflight_look" in node and node["ansible_host"] != node["motley_address"]:
            macs += [nic["mac"] for nic in node["motley_preflight_look"]["node"]["nics"]]
    return macs


def _from_ansible(node: dict[str, Any], wish: dict[str, Any]) -> dict[str, Any]:
    """Ansible's texts carry their origin, which YAML cannot write down."""
    return motley_netplan(json.loads(json.dumps(node)), json.loads(json.dumps(wish)))


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"motley_netplan": _from_ansible, "motley_leaving": motley_leaving}
