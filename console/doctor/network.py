"""Names, addresses, NICs, firewall: what a node says of its own network. Pure."""

from __future__ import annotations

import ipaddress

from console.doctor.probe_helpers import FOLDERS, Found, Skipped, bootstrap, listed, need
from console.doctor.readings_and_findings import Facts, Finding, NodeReadings, Readings
from plugins.module_utils.motley.doctor_network import Network, Nic

GIGABIT = 1000
CLOSED = "as the rules show: only a machine outside the cluster could prove it"


def names(readings: Readings) -> Found:
    wrong = []
    own = [(node, facts) for node, facts in need(readings, "names") if node.managed]
    if not own:
        raise Skipped(FOLDERS)
    for node, facts in own:
        managed = [other for other in readings.nodes if other.managed]
        lost = [n.name for n in managed if facts["lead_to"].get(n.name) != n.address]
        phase, fix = "hostname", bootstrap("hostname", node.name)
        about: Facts = {"node": node.name, "fix": fix, "phase": phase, "safe": True}
        if loop := facts["loopback"]:
            what = f"/etc/hosts gives {listed(loop)} a loopback address: others would look for it on themselves"
            wrong.append(Finding(what=what, **about))
        elif lost:
            where = listed([f"{name} leads to {facts['lead_to'].get(name) or 'nothing'}" for name in lost])
            wrong.append(Finding(what=f"names of the cluster have wrong addresses there: {where}", **about))
        elif facts["hostname"] != node.name:
            wrong.append(Finding(what=f"its hostname is {facts['hostname']}", **about))
    return f"every name leads to its node, on {len(need(readings, 'names'))} of {len(readings.nodes)} nodes", wrong


def network(readings: Readings) -> Found:
    wrong = [finding for node, facts in need(readings, "network") for finding in _network_of(node, facts)]
    owners: dict[str, list[str]] = {}
    for node, facts in need(readings, "network"):
        lan = ipaddress.ip_network(node.expected["subnet"])
        for link in facts["links"]:
            for address in link["addresses"]:
                if ipaddress.ip_interface(address).ip in lan:
                    owners.setdefault(address.split("/")[0], []).append(node.name)
    for address, who in owners.items():
        if len(set(who)) > 1:
            what, fix = f"{address} is on {listed(who)} at once", bootstrap("static_ip", ",".join(sorted(set(who))))
            wrong.append(Finding(node=who[-1], what=what, fix=fix))
    nics = listed([f"{facts['nic']}" for _, facts in need(readings, "network") if facts["nic"]])
    return f"each by one network card ({nics})" if nics else "no node has its address", wrong


def _network_of(node: NodeReadings, facts: Network) -> list[Finding]:
    wrong = []

    def add(what: str, fix: str, phase: str = "") -> None:
        wrong.append(Finding(node=node.name, what=what, fix=fix, phase=phase))

    if not facts["nic"]:
        at = listed([address for link in facts["links"] for address in link["addresses"]]) or "no address"
        what = f"{node.address} is on none of its network cards (it has {at})"
        add(what, bootstrap("static_ip", node.name), "static_ip")
        return wrong
    lan = ipaddress.IPv4Network(node.expected["subnet"])
    other_routes = {name: route["nic"] for name, route in facts["routes"].items() if route["nic"] != facts["nic"]}
    if other_routes:
        routes = listed([f"to {name} by {nic or 'no network card'}" for name, nic in other_routes.items()])
        add(
            f"it goes {routes}, not by {facts['nic']}",
            "see why on it: ip route get ADDRESS; remove that route or network card",
        )
    else:
        for link in facts["links"]:
            # A wider one, such as a VPN's 10/8, is no rival: the kernel takes the narrower route.
            near = [a for a in link["addresses"] if ipaddress.IPv4Interface(a).network.subnet_of(lan)]
            if near and link["name"] != facts["nic"]:
                what = f"{link['name']} ({near[0]}) is in the same network as {facts['nic']}: answers may use either"
                add(what, f"on it: sudo ip link set {link['name']} down; give it another network permanently")
    if facts.get("also_has_address"):
        what = f"another machine ({facts['also_has_address']}) also answers for {node.address}"
        add(what, "find it (its hardware address is on its label) and give it another address")
    nic = (node.part("files") or {}).get("interface", "")
    if nic not in ("", "lo", facts["nic"]):  # a run of this node alone has no other: it names lo
        what = f"its last run used {nic}, its network card is {facts['nic']} now: it would not rejoin that run"
        add(what, "./motley launch --resume RUN writes them again")
    return wrong


def firewall(readings: Readings) -> Found:
    wrong = []
    found = [(node, facts) for node, facts in need(readings, "firewall") if node.expected["firewall"]]
    if not found:
        raise Skipped("motley_firewall_manage is false")
    addresses = {node.address: node.name for node in readings.nodes}
    for node, facts in found:
        strange = [addresses[address] for address in addresses if address not in facts["friends"]]
        if (caller := node.part("caller")) and caller not in facts["friends"]:
            strange.append(f"this controller ({caller})")
        what = ""
        if facts["kind"] == "none" and not facts["on"]:
            what = "its training ports are open to everybody: the phase firewall was never done there"
        elif not facts["on"]:
            what = f"its training ports are open to everybody: Motley's {facts['kind']} rules are not loaded"
        elif facts["gone"]:
            what = f"rules of Motley are gone from ufw: {facts['gone'][0]}"
        elif strange:
            what = f"its rules keep out {listed(strange)}"
        if what:
            fix = bootstrap("firewall", node.name)
            wrong.append(Finding(node=node.name, what=what, fix=fix, phase="firewall", safe=True))
    return f"open only to the nodes on {len(found) - len(wrong)} of {len(found)}; {CLOSED}", wrong


def link(readings: Readings) -> Found:
    wrong, seen = [], []
    nics = {}
    for node, facts in need(readings, "network"):
        nic = next((link for link in facts["links"] if link["name"] == facts["nic"]), None)
        if nic:
            nics[node.name] = nic
    best = max((nic["mbit"] for nic in nics.values()), default=0)
    for name, nic in nics.items():
        seen.append(_speed(nic))
        about: Facts = {"node": name}
        if nic["wireless"]:
            what = "it is on Wi-Fi: slower and less even than a cable, and every step waits for it"
            wrong.append(Finding(what=what, fix="a network cable", note=True, **about))
        if nic["duplex"] == "half":
            wrong.append(Finding(what=f"{nic['name']} runs half duplex", fix="another cable, or another port", **about))
        elif 0 < nic["mbit"] < min(best, GIGABIT):
            what = f"{nic['name']} runs at {nic['mbit']} Mbit/s, another node's at {best}"
            wrong.append(
                Finding(what=what, fix="another cable (all eight wires), or another port of the switch", **about)
            )
    return listed(seen) or "no network card known", wrong


def _speed(nic: Nic) -> str:
    kind = "Wi-Fi" if nic["wireless"] else "cable"
    return f"{kind} {nic['mbit']} Mbit/s" if nic["mbit"] else kind
