"""Names, addresses, cards, firewall: what a node says of its own network. Pure."""

from __future__ import annotations

import ipaddress

from console.doctor.common import FOLDERS, Found, Skipped, bootstrap, listed, need
from console.doctor.readings import Facts, Finding, Node, Readings

GIGABIT = 1000
CLOSED = "who else may call is read from the rules: only a machine outside the cluster could prove it"


def names(readings: Readings) -> Found:
    wrong = []
    own = [(node, told) for node, told in need(readings, "names") if node.managed]
    if not own:
        raise Skipped(FOLDERS)
    for node, told in own:
        managed = [other for other in readings.nodes if other.managed]
        lost = [n.name for n in managed if told["lead_to"].get(n.name) != n.address]
        phase, fix = "hostname", bootstrap("hostname", node.name)
        about: Facts = {"probe": "names", "node": node.name, "fix": fix, "phase": phase, "safe": True}
        if loop := told["loopback"]:
            what = f"/etc/hosts gives {listed(loop)} a loopback address: others would be told to meet it on themselves"
            wrong.append(Finding(what=what, **about))
        elif lost:
            where = listed([f"{name} leads to {told['lead_to'].get(name) or 'nothing'}" for name in lost])
            wrong.append(Finding(what=f"names of the cluster lead astray there: {where}", **about))
        elif told["hostname"] != node.name:
            wrong.append(Finding(what=f"it calls itself {told['hostname']}", **about))
    return f"every name leads to its node, on {_of(readings, 'names')}", wrong


def _of(readings: Readings, part: str) -> str:
    count = len(need(readings, part))
    return f"{count} of {len(readings.nodes)} nodes"


def network(readings: Readings) -> Found:
    wrong = [finding for node, told in need(readings, "network") for finding in _network_of(node, told)]
    owners: dict[str, list[str]] = {}
    for node, told in need(readings, "network"):
        lan = ipaddress.ip_network(node.wish["subnet"])
        for link in told["links"]:
            for address in link["addresses"]:
                if ipaddress.ip_interface(address).ip in lan:
                    owners.setdefault(address.split("/")[0], []).append(node.name)
    for address, who in owners.items():
        if len(set(who)) > 1:
            what, fix = f"{address} is on {listed(who)} at once", bootstrap("static_ip", ",".join(sorted(set(who))))
            wrong.append(Finding(probe="network", node=who[-1], what=what, fix=fix))
    cards = listed([f"{told['card']}" for _, told in need(readings, "network") if told["card"]])
    return f"each by one card ({cards})" if cards else "no node has its address", wrong


def _network_of(node: Node, told: Facts) -> list[Finding]:
    wrong = []

    def tell(what: str, fix: str, phase: str = "") -> None:
        wrong.append(Finding(probe="network", node=node.name, what=what, fix=fix, phase=phase))

    if not told["card"]:
        at = listed([address for link in told["links"] for address in link["addresses"]]) or "no address"
        tell(f"{node.address} is on none of its cards (it has {at})", bootstrap("static_ip", node.name), "static_ip")
        return wrong
    lan = ipaddress.IPv4Network(node.wish["subnet"])
    astray = {name: way["card"] for name, way in told["ways"].items() if way["card"] != told["card"]}
    if astray:
        ways = listed([f"to {name} by {card or 'no card'}" for name, card in astray.items()])
        tell(
            f"it goes {ways}, not by {told['card']}",
            "see why on it: ip route get ADDRESS; take that route or card away",
        )
    else:
        for link in told["links"]:
            # A wider one, such as a VPN's 10/8, is no rival: the kernel takes the narrower route.
            near = [a for a in link["addresses"] if ipaddress.IPv4Interface(a).network.subnet_of(lan)]
            if near and link["name"] != told["card"]:
                what = (
                    f"{link['name']} ({near[0]}) is in the same network as {told['card']}: answers may come by either"
                )
                tell(what, f"on it: sudo ip link set {link['name']} down; give it another network for good")
    if told.get("also_has_address"):
        what = f"another machine ({told['also_has_address']}) also answers for {node.address}"
        tell(what, "find it (its hardware address is on its label) and give it another address")
    card = (node.part("files") or {}).get("interface", "")
    if card and card != told["card"]:
        what = (
            f"the settings of its last run name the card {card}, it is {told['card']} now: it would not rejoin that run"
        )
        tell(what, "make launch RESUME=RUN writes them anew")
    return wrong


def firewall(readings: Readings) -> Found:
    wrong = []
    found = [(node, told) for node, told in need(readings, "firewall") if node.wish["firewall"]]
    if not found:
        raise Skipped("motley_firewall_manage is false")
    addresses = {node.address: node.name for node in readings.nodes}
    for node, told in found:
        strange = [addresses[address] for address in addresses if address not in told["friends"]]
        if (caller := node.part("caller")) and caller not in told["friends"]:
            strange.append(f"this controller ({caller})")
        what = ""
        if told["kind"] == "none" and not told["on"]:
            what = "its training ports are open to everybody: the phase firewall was never done there"
        elif not told["on"]:
            what = f"its training ports are open to everybody: Motley's {told['kind']} rules are not loaded"
        elif told["gone"]:
            what = f"rules of Motley are gone from ufw: {told['gone'][0]}"
        elif strange:
            what = f"its rules keep out {listed(strange)}"
        if what:
            fix = bootstrap("firewall", node.name)
            wrong.append(Finding(probe="firewall", node=node.name, what=what, fix=fix, phase="firewall", safe=True))
    return f"open to the nodes alone on {len(found) - len(wrong)} of {len(found)}; {CLOSED}", wrong


def link(readings: Readings) -> Found:
    wrong, seen = [], []
    cards = {}
    for node, told in need(readings, "network"):
        card = next((link for link in told["links"] if link["name"] == told["card"]), None)
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
