"""Plans a node's netplan files: one NIC gets its fixed address, everything else stays as it is. Pure.

The NIC's settings move to a file of our own, matched by the NIC's MAC, so that a renamed NIC keeps its address.
They are taken out of the other files because netplan joins the address lists of all files.
"""

from __future__ import annotations

import fnmatch
import ipaddress
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from console.netplan_yaml import SECTIONS, Data, address_of, join, load, read
from plugins.module_utils.motley import ifupdown

OWN_FILE = "/etc/netplan/60-motley.yaml"
CLOUD_INIT = "/etc/cloud/cloud.cfg.d/99-motley-network.cfg"
HEADER = "# Written by Motley; the files before it are kept in /var/lib/motley/before/static_ip.\n"
REPLACED = ("dhcp4", "dhcp4-overrides", "gateway4", "addresses", "routes", "nameservers")
# Of a NetworkManager profile: its IPv4, for which NIC it is, and that it is used with nobody logged in.
DECIDED_HERE = (
    *("ipv4.", "match.", "ethernet.mac-address", "ethernet.cloned-mac-address"),
    *("connection.interface-name", "connection.autoconnect", "connection.permissions"),
)
MAIN_TABLE = "254"
RESOLV_CONF = "/etc/resolv.conf"
# What lies on a NIC has the NIC's MAC.
NOT_A_CARD = "vlan bridge bond macvlan ipvlan"


def by_its_mac(name: str, nic: Data) -> dict[str, str]:
    """netplan asks networkd for the burnt-in MAC; a virtual NIC has none."""
    match = f"PermanentMACAddress=\nMACAddress={nic['mac']}\nKind=!{NOT_A_CARD}\n"
    return {f"/etc/systemd/network/10-netplan-{name}.network.d/motley.conf": f"{HEADER}[Match]\n{match}"}


def motley_netplan(node: Data, params: Data) -> Data:
    """Which NIC, and which files it takes; or `error` and `fix`, or `skip` with the reason to leave it alone.

    `node` is preflight_info's; `params` has address, prefix, gateway, dns, mac (may be empty), reached_at and adopt.
    """
    nic = find_nic(node["nics"], params)
    if nic is None:
        return _no_nic(node, params)
    nic = {**nic, "dns": node.get("dns", {}).get(nic["name"]) or {"servers": [], "search": []}}
    documents, unread = read_all(node["netplan"])
    if unread:
        return unread
    section, name, stanza, homes = take_out(documents, nic)
    manager = renderer(documents, stanza) == "NetworkManager"
    base = {"nic": nic["name"], "mac": nic["mac"], "manager": manager, "adopts": False, "install": []}
    adopts = by_ifupdown(node, nic, stanza)
    if refused := _left_alone(node, params, nic, stanza) or _transient(homes):
        return base | refused
    if adopts:
        stanza = ifupdown.as_netplan(node["ifupdown"][nic["name"]])
        if nic["dns"]["servers"]:  # ifupdown's own are words for resolvconf, which may not be there
            stanza.pop("nameservers", None)
    if section == "ethernets" and not manager:
        name = before_patterns(documents, name, nic)
    # NetworkManager writes a saved network again to the file where it is.
    target = homes[0] if section == "wifis" and len(homes) == 1 else OWN_FILE
    if target == OWN_FILE:
        documents[OWN_FILE] = {}
    changed = with_address(stanza, section, nic, params, manager)
    put_in(documents[target], section, name, changed)
    files = {
        hides(path): _dump(document)
        for path, document in documents.items()
        if path == OWN_FILE or document != load(node["netplan"][path])
    }
    if not nic["permanent_mac"] and section == "ethernets" and not manager:
        files |= by_its_mac(name, nic)
    if node["cloud_init"]:
        files[CLOUD_INIT] = f"{HEADER}network: {{config: disabled}}\n"
    if adopts and node.get("resolv_conf") == "file" and params["dns"] not in ([], nic["dns"]["servers"]):
        files[RESOLV_CONF] = resolv_conf(changed)  # no service turns netplan's name servers into that file
    install = ["netplan.io"] if adopts and not node["has_netplan"] else []
    address = f"{params['address']}/{params['prefix']}"
    return base | {"address": address, "adopts": adopts, "install": install, "files": files}


def read_all(texts: dict[str, str]) -> tuple[Data, Data]:
    """The files in netplan's order, by name; and which of them it would refuse, if one."""
    documents = Data()
    for path in sorted(texts, key=lambda path: Path(path).name):
        documents[path], why = read(texts[path])
        if why:
            fix = "correct it (on it, sudo netplan generate says the same), then run again"
            return {}, {"error": f"its netplan file {path} cannot be read: {why}", "fix": fix}
    return documents, {}


def find_nic(nics: list[Data], params: Data) -> Data | None:
    """The NIC with the given MAC; else the NIC through which we talk to the node; else the one that has the address.

    What lies on a NIC (a VLAN, a bridge) has its MAC too: the one that has the address is meant, else the NIC.
    """
    known = [nic for nic in nics if not params["mac"] or has_mac(nic, params["mac"])]
    for address in (params["reached_at"], params["address"]):
        for nic in known:
            if any(own.split("/")[0] == address for own in nic["addresses"]):
                return nic
    return min(known, key=lambda nic: len(nic.get("lower", [])), default=None) if params["mac"] else None


def _no_nic(node: Data, params: Data) -> Data:
    nics = ", ".join(f"{nic['name']} {nic['mac']}" for nic in node["nics"]) or "none"
    if params["mac"]:
        return {
            "error": f"it has no network card with MAC {params['mac']}",
            "fix": f"correct motley_mac; its network cards: {nics}",
        }
    fix = f"name the network card: motley_mac: one of {nics}"
    return {"error": f"no network card of it carries {params['reached_at']}", "fix": fix}


def _left_alone(node: Data, params: Data, nic: Data, stanza: Data) -> Data:
    """Why a NIC that netplan does not have is left as it is; empty where it is netplan's, or may become it."""
    ifupdowns = by_ifupdown(node, nic, stanza)
    lies_on = nic["wireless"] or nic.get("lower")
    if not ifupdowns and node["has_netplan"] and (stanza or not lies_on):
        return {}
    agreed = params.get("adopt") == "netplan" and ifupdowns
    if f"{params['address']}/{params['prefix']}" in nic["addresses"] and not agreed:
        return {"skip": f"{nic['name']} has {params['address']} from elsewhere than netplan; left alone"}
    how = "Wi-Fi outside netplan" if nic["wireless"] else "without netplan"
    fix = f"reserve {params['address']} for {nic['mac']} in your router and set motley_static_ip_manage: false for it"
    what = f"its network card {nic['name']} is set up {how}"
    if not ifupdowns or nic["wireless"]:
        return {"error": what, "fix": fix}
    rival = "NetworkManager" if node.get("network_manager") else ""
    if odd := ifupdown.beyond_netplan(nic["name"], node["ifupdown"]) or rival:
        return {"error": f"{what}, and with '{odd}', which netplan would not take over", "fix": fix}
    if not agreed:
        return {"error": what, "fix": f"motley_static_ip_adopt: netplan lets netplan take it over; or {fix}"}
    return {}


def by_ifupdown(node: Data, nic: Data, stanza: Data) -> bool:
    """Whether it is ifupdown, and not netplan, that sets up this NIC."""
    return not stanza and nic["name"] in node.get("ifupdown", {})


def _transient(homes: list[str]) -> Data:
    for path in homes:
        if path.startswith("/run/"):
            fix = f"move its settings from {path} to /etc/netplan, or set motley_static_ip_manage: false for it"
            return {
                "error": f"its network card is set up by {path}, which is gone or written again at each start",
                "fix": fix,
            }
    return {}


def hides(path: str) -> str:
    """The path to write: of two files of one name netplan reads the one in /etc; the vendor's is never written to."""
    return path if path.startswith("/etc/") else f"/etc/netplan/{Path(path).name}"


def take_out(documents: Data, nic: Data) -> tuple[str, str, Data, list[str]]:
    """Remove the NIC's settings from all files.

    Returns (section, id, settings joined in netplan's order, the files that had them).
    """
    section, name, joined = "wifis" if nic["wireless"] else "ethernets", nic["name"], Data()
    homes, names = [], set()
    for path, document in documents.items():
        network = dict(document.get("network") or {})
        for kind in SECTIONS:
            devices = dict(network.get(kind) or {})
            for device in [
                d for d, stanza in devices.items() if d != "renderer" and _is_nic(d, stanza or {}, nic, kind)
            ]:
                by_section = {"renderer": devices["renderer"]} if "renderer" in devices else {}
                section, name, joined = kind, device, join({**joined, **by_section}, devices.pop(device) or {})
                network = {**network, kind: devices}
                homes.append(path)
                names.add(device)
            if kind in network and not devices:
                del network[kind]
        if network != document.get("network"):
            documents[path] = {**document, "network": network}
    if len(names) > 1:  # which of them is in use is not known
        if section == "wifis":
            return section, name, {}, []
        joined.pop("networkmanager", None)
    return section, name, joined, homes


def put_in(document: Data, section: str, name: str, stanza: Data) -> None:
    network = document.setdefault("network", {"version": 2})
    network[section] = {**(network.get(section) or {}), name: stanza}


def before_patterns(documents: Data, name: str, nic: Data) -> str:
    """networkd takes the first file that matches a NIC: ours is to sort before a pattern's (all-en: en*)."""
    networks = [document.get("network") or {} for document in documents.values()]
    sections = [section for network in networks for section in network.values() if isinstance(section, dict)]
    stanzas = [stanza for section in sections for stanza in section.values() if isinstance(stanza, dict)]
    if any(name == stanza.get("link") or name in (stanza.get("interfaces") or []) for stanza in stanzas):
        return name  # a VLAN or a bridge on it calls it so
    cards = [(str(device), stanza) for of in networks for device, stanza in (of.get("ethernets") or {}).items()]
    hidden = any(_has_pattern_for(stanza, nic) for device, stanza in cards if f"{device}." < f"{name}.")
    return f"00-{nic['name']}" if hidden else name


def _has_pattern_for(stanza: Any, nic: Data) -> bool:
    """A driver is not known here: it may be the NIC's."""
    match = stanza.get("match") if isinstance(stanza, dict) else None
    if match is None or not has_mac(nic, match.get("macaddress", nic["mac"])):
        return False
    names = match.get("name") or ["*"]
    return any(fnmatch.fnmatch(nic["name"], pattern) for pattern in ([names] if isinstance(names, str) else names))


def _is_nic(device: str, stanza: Data, nic: Data, section: str) -> bool:
    if nic["wireless"] and section == "wifis":
        return _is_in_use(device, stanza, nic)
    match = stanza.get("match") or {}
    if section not in ("ethernets", "wifis") or "match" not in stanza:
        return bool(device == nic["name"])
    if "macaddress" in match:
        return has_mac(nic, match["macaddress"]) and not nic.get("lower")
    # A pattern such as en* stands for other NICs as well: it is not this NIC's own.
    return match.get("name") in (nic["name"], [nic["name"]])


def has_mac(nic: Data, written: Any) -> bool:
    """Whether this is its burnt-in MAC, or the one that it shows instead (a cloned one)."""
    return str(written).lower() in (nic["mac"].lower(), nic["permanent_mac"].lower())


def _is_in_use(device: str, stanza: Data, nic: Data) -> bool:
    """A laptop has many saved networks, each with its settings: the one that it is in, where that is known."""
    match = stanza.get("match") or {}
    if "match" not in stanza and device != nic["name"]:
        return False
    names = match.get("name") or [nic["name"]]
    patterns = [names] if isinstance(names, str) else names
    if not any(fnmatch.fnmatch(nic["name"], pattern) for pattern in patterns):
        return False
    if not has_mac(nic, match.get("macaddress", nic["mac"])):
        return False
    points = stanza.get("access-points") or {}
    saved = [stanza, *(point for point in points.values() if isinstance(point, dict))]
    uuids = [str(of["networkmanager"].get("uuid", "")) for of in saved if isinstance(of.get("networkmanager"), dict)]
    now = nic.get("network") or {"uuid": "", "ssid": ""}
    if now["uuid"] and any(uuids):
        return now["uuid"] in uuids
    # Settings of the NIC itself, for whatever network, need no such proof.
    return now["ssid"] in map(str, points) if now["ssid"] else "match" not in stanza


def renderer(documents: Data, stanza: Data) -> str:
    """networkd, unless the NIC or (in the last file that says so) the whole machine is NetworkManager's."""
    named = [str((document.get("network") or {}).get("renderer", "")) for document in documents.values()]
    return str(stanza.get("renderer") or next((name for name in reversed(named) if name), "networkd"))


def resolv_conf(stanza: Data) -> str:
    servers, search = (stanza["nameservers"].get(key, []) for key in ("addresses", "search"))
    lines = [f"nameserver {server}" for server in servers] + ([f"search {' '.join(search)}"] if search else [])
    return HEADER + "".join(f"{line}\n" for line in lines)


def with_address(stanza: Data, section: str, nic: Data, params: Data, manager: bool) -> Data:
    """The NIC's settings with the fixed address; IPv6, other subnets, Wi-Fi passwords, MTU and further routes stay.

    Where no name servers are asked for those stay that its settings name, else those that the node uses by it.
    """
    kept = {key: value for key, value in stanza.items() if key not in REPLACED}
    others = [address for address in stanza.get("addresses") or [] if _stays(address, params)]
    gateway = params["gateway"] or nic.get("gateway")  # none is named where there is no router; what is there stays
    out = [{"to": "default", "via": gateway}] if gateway else []
    routes = [*out, *(route for route in stanza.get("routes") or [] if not _is_default(route))]
    named = stanza.get("nameservers") or {}
    servers = list(params["dns"] or named.get("addresses") or nic["dns"]["servers"])
    search = list(named.get("search") or nic["dns"]["search"])
    nameservers = ({"addresses": servers} if servers else {}) | ({"search": search} if search else {})
    if section == "ethernets":
        burnt_in = {"macaddress": nic["permanent_mac"] or nic["mac"]}
        kept = {"match": burnt_in, **{key: kept[key] for key in kept if key != "match"}}
        if manager:  # before any profile that NetworkManager made by itself for every wired NIC
            kept["networkmanager"] = {"passthrough": {**passed_on(stanza), "connection.autoconnect-priority": "100"}}
    elif points := kept.get("access-points"):
        kept = without_ipv4(kept) | {"access-points": {name: without_ipv4(point) for name, point in points.items()}}
    return {
        **kept,
        "dhcp4": False,
        "addresses": [f"{params['address']}/{params['prefix']}", *others],
        **({"routes": routes} if routes else {}),
        **({"nameservers": nameservers} if nameservers else {}),
    }


def without_ipv4(of: Any) -> Any:
    """A Wi-Fi network's settings without what NetworkManager keeps of its IPv4: that is stronger than netplan's."""
    theirs = ((of or {}).get("networkmanager") or {}).get("passthrough")
    if not (of and theirs):
        return of
    left = {key: value for key, value in theirs.items() if not key.startswith("ipv4.")}
    return {**of, "networkmanager": {**of["networkmanager"], "passthrough": left}}


def passed_on(stanza: Data) -> Data:
    """NetworkManager's settings that netplan has no words for, such as a firewall zone or 802.1X."""
    theirs = (stanza.get("networkmanager") or {}).get("passthrough") or {}
    return {key: value for key, value in theirs.items() if not key.startswith(DECIDED_HERE)}


def _stays(address: Any, params: Data) -> bool:
    """IPv6, and of another subnet what is not left."""
    own = address_of(address)
    subnet = ipaddress.ip_interface(f"{params['address']}/{params['prefix']}").network
    return own.version == 6 or (own.ip not in subnet and str(own.ip) != params["reached_at"])


def _is_default(route: Data) -> bool:
    """Whether it is the default of IPv4 and of the main table: the others are asked where a routing-policy says so."""
    if str(route.get("table", MAIN_TABLE)) != MAIN_TABLE:
        return False
    return str(route.get("to")) in ("default", "0.0.0.0/0", "0/0") and ":" not in str(route.get("via", ""))


def _dump(document: Data) -> str:
    # No line is folded: what a diff hides of a password ends with its line.
    return HEADER + str(yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=1000))


def motley_leaving(names: list[str], hostvars: Any) -> list[str]:
    """MACs of the nodes that are about to give up their present address: theirs may be taken over."""
    macs = []
    for name in names:
        node = hostvars[name]
        if "motley_preflight_look" in node and node["ansible_host"] != node["motley_address"]:
            macs += [nic["mac"] for nic in node["motley_preflight_look"]["node"]["nics"]]
    return macs


def _from_ansible(node: Data, params: Data) -> Data:
    """Ansible's texts carry their origin, which YAML cannot write down."""
    return motley_netplan(json.loads(json.dumps(node)), json.loads(json.dumps(params)))


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {"motley_netplan": _from_ansible, "motley_leaving": motley_leaving}
