"""Names, addresses, cards, firewall: what a node says of its own network. Pure."""

from __future__ import annotations

import ipaddress

from console.doctor.common import FOLDERS, Found, Skipped, bootstrap, listed, need
from console.doctor.readings import Facts, Finding, NodeReadings, Readings

GIGABIT = 1000
CLOSED = "who else may call is read from the rules: only a machine outside the cluster could prove it"


def names(readings: Readings) -> Found:
    wrong = []
    own = [(node, facts) for node, facts in need(readings, "names") if node.managed]
    if not own:
        raise Skipped(FOLDERS)
    for node, facts in own:
        managed = [other for other in readings.nodes if other.managed]
        lost = [n.name for n in managed if facts["lead_to"].get(n.name) != n.address]
        phase, fix = "hostname", bootstrap("hostname", node.name)
        about: Facts = {"probe": "names", "node": node.name, "fix": fix, "phase": phase, "safe": True}
        if loop := facts["loopback"]:
            what = f"/etc/hosts gives {listed(loop)} a loopback address: others would look for it on themselves"
            wrong.append(Finding(what=what, **about))
        elif lost:
            where = listed([f"{name} leads to {facts['lead_to'].get(name) or 'nothing'}" for name in lost])
            wrong.append(Finding(what=f"names of the cluster lead astray there: {where}", **about))
        elif facts["hostname"] != node.name:
            wrong.append(Finding(what=f"it calls itself {facts['hostname']}", **about))
    return f"every name leads to its node, on {_of(readings, 'names')}", wrong


def _of(readings: Readings, part: str) -> str:
    count = len(need(readings, part))
    return f"{count} of {len(readings.nodes)} nodes"


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
            wrong.append(Finding(probe="network", node=who[-1], what=what, fix=fix))
    cards = listed([f"{facts['card']}" for _, facts in need(readings, "network") if facts["card"]])
    return f"each by one card ({cards})" if cards else "no node has its address", wrong


def _network_of(node: NodeReadings, facts: Facts) -> list[Finding]:
    wrong = []

    def add(what: str, fix: str, phase: str = "") -> None:
        wrong.append(Finding(probe="network", node=node.name, what=what, fix=fix, phase=phase))

    if not facts["card"]:
        at = listed([address for link in facts["links"] for address in link["addresses"]]) or "no address"
        what = f"{node.address} is on none of its network cards (it has {at})"
        add(what, bootstrap("static_ip", node.name), "static_ip")
        return wrong
    lan = ipaddress.IPv4Network(node.expected["subnet"])
    astray = {name: route["card"] for name, route in facts["ways"].items() if route["card"] != facts["card"]}
    if astray:
        ways = listed([f"to {name} by {card or 'no card'}" for name, card in astray.items()])
        add(
            f"it goes {ways}, not by {facts['card']}",
            "see why on it: ip route get ADDRESS; take that route or card away",
        )
    else:
        for link in facts["links"]:
            # A wider one, such as a VPN's 10/8, is no rival: the kernel takes the narrower route.
            near = [a for a in link["addresses"] if ipaddress.IPv4Interface(a).network.subnet_of(lan)]
            if near and link["name"] != facts["card"]:
                what = (
                    f"{link['name']} ({near[0]}) is in the same network as {facts['card']}: answers may come by either"
                )
                add(what, f"on it: sudo ip link set {link['name']} down; give it another network permanently")
    if facts.get("also_has_address"):
        what = f"another machine ({facts['also_has_address']}) also answers for {node.address}"
        add(what, "find it (its hardware address is on its label) and give it another address")
    card = (node.part("files") or {}).get("interface", "")
    if card and card != facts["card"]:
        what = f"the settings of its last run name {card}, it is {facts['card']} now: it would not rejoin that run"
        add(what, "make launch RESUME=RUN writes them again")
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
            wrong.append(Finding(probe="firewall", node=node.name, what=what, fix=fix, phase="firewall", safe=True))
    return f"open to the nodes alone on {len(found) - len(wrong)} of {len(found)}; {CLOSED}", wrong


def link(readings: Readings) -> Found:
    wrong, seen = [], []
    cards = {}
    for node, facts in need(readings, "network"):
        card = next((link for link in facts["links"] if link["name"] == facts["card"]), None)
        if card:
            cards[node.name] = card
    best = max((card["mbit"] for card in cards.values()), default=0)
    for name, card in cards.items():
        seen.append(_speed(card))
        about: Facts = {"probe": "link", "node": name}
        if card["wireless"]:
            what = "it is on Wi-Fi: slower and less even than a cable, and every step waits for it"
            wrong.append(Finding(what=what, fix="a network cable", note=True, **about))
        if card["duplex"] == "half":
            wrong.append(
                Finding(what=f"{card['name']} runs half duplex", fix="another cable, or another port", **about)
            )
        elif 0 < card["mbit"] < min(best, GIGABIT):
            what = f"{card['name']} runs at {card['mbit']} Mbit/s, another node's at {best}"
            wrong.append(
                Finding(what=what, fix="another cable (all eight wires), or another port of the switch", **about)
            )
    return listed(seen) or "no card known", wrong


def _speed(card: Facts) -> str:
    kind = "Wi-Fi" if card["wireless"] else "cable"
    return f"{kind} {card['mbit']} Mbit/s" if card["mbit"] else kind
