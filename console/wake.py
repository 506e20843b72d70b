"""./motley wake: a magic packet from the head's side of the LAN to machines that are off, and who has woken.

Which network card a machine has was seen by bootstrap while it was on, and is kept in the controller's folder.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import socket
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypedDict

from console.infra.node import Node, Silent, from_inventory
from console.inventory.read import Inventory
from console.text_layout import say
from plugins.module_utils.motley import waking
from plugins.module_utils.motley.files import read_json
from train.errors import BadInput
from train.files import write_atomic

WAKES_S, AGAIN_S = 60.0, 5.0
FILE = "cards.json"


def wake(inventory: Inventory, limit: Sequence[str]) -> int:
    """Wakes the machines, and says which did not wake; 0: all are awake."""
    nodes = from_inventory(inventory)
    began = time.monotonic()
    asleep = [node for node in nodes if node.name in looks_asleep(nodes)]
    wanted = [node for node in nodes if not limit or node.name in limit]
    width = max((len(node.name) for node in wanted), default=0)
    for node in wanted:
        if node not in asleep:
            say(f"  {node.name:<{width}}  is awake")
    waiting = {node.name: node for node in wanted if node in asleep}
    if not waiting:
        return 0
    cards = known(inventory)
    sender = Sender(inventory, [node for node in nodes if node not in asleep])
    macs = {name: card["mac"] for name in waiting if (card := cards.get(name, {})).get("mac")}
    next_at = 0.0
    while waiting.keys() & macs.keys() and time.monotonic() - began < WAKES_S:
        if time.monotonic() >= next_at:
            next_at = time.monotonic() + AGAIN_S
            sender.send([macs[name] for name in waiting if name in macs])
        still = looks_asleep(list(waiting.values()))
        for name in [name for name in waiting if name not in still]:
            del waiting[name]
            say(f"  {name:<{width}}  awake after {time.monotonic() - began:.0f} s")
        time.sleep(0.3)
    for name in waiting:
        say(f"  {name:<{width}}  {why(cards.get(name, {}), sender)}")
    return 1 if waiting else 0


def looks_asleep(nodes: Sequence[Node]) -> set[str]:
    def one(node: Node) -> bool:
        try:
            node.answering()
        except Silent:
            return True
        return False

    with ThreadPoolExecutor(max(1, len(nodes))) as pool:
        return {node.name for node, off in zip(nodes, pool.map(one, nodes), strict=True) if off}


def why(card: NicOfNode, sender: Sender) -> str:
    if not card.get("mac"):
        return (
            "did not wake: its network card is not known\nfix: start it by hand, then ./motley bootstrap --phase power"
        )
    if sender.trouble:
        return f"did not wake: {sender.trouble}"
    first = f"did not wake within {WAKES_S:.0f} s"
    if card.get("wake_on"):  # what bootstrap found disarmed, it has armed
        return f"{first}: is it plugged in? Its firmware may switch the card off with it (Wake on LAN, ErP)"
    return f"{first}: bootstrap found that its network card cannot be woken, or no ethtool there to ask it"


class Sender:
    """The first node that is awake, mostly the head; and this machine, if it is on that LAN."""

    def __init__(self, inventory: Inventory, awake: Sequence[Node]) -> None:
        shared = next(iter(inventory.nodes.values()))
        if "motley_subnet" not in shared:
            raise BadInput("wake: these machines are in no network of Motley's", f"inventory: {inventory.path}")
        self.network = ipaddress.ip_network(str(shared["motley_subnet"]), strict=False)
        self.awake, self.trouble = list(awake), ""

    def send(self, macs: list[str]) -> None:
        to, sent = str(self.network.broadcast_address), False
        for node in self.awake:
            with contextlib.suppress(Silent):
                node.wake(macs, to)
                sent = True
                break
        if self.is_here():
            with contextlib.suppress(OSError):
                waking.send(macs, to)
                sent = True
        self.trouble = "" if sent else f"nobody who is awake is in {self.network}: the packet goes no further than that"

    def is_here(self) -> bool:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe, contextlib.suppress(OSError):
            probe.connect((str(next(self.network.hosts())), waking.PORT))  # sends nothing
            return ipaddress.ip_address(probe.getsockname()[0]) in self.network
        return False


# -- what is known of their network cards ----------------------------------------------------------------------------


class NicOfNode(TypedDict, total=False):
    """The network card by which a node is reached; empty where none is known."""

    name: str
    mac: str
    wake_on: str


def card_of(values: Mapping[str, Any]) -> NicOfNode:
    """The network card that leads to this node, by what Ansible has looked at."""
    nics = values.get("motley_preflight_look", {}).get("node", {}).get("nics", [])
    return nic_of(
        nics, [str(values.get(key, "")) for key in ("ansible_host", "motley_address", "motley_preflight_reached")]
    )


def nic_of(nics: Sequence[Mapping[str, Any]], addresses: Sequence[str]) -> NicOfNode:
    for nic in nics:
        if {str(address).partition("/")[0] for address in nic["addresses"]} & {*addresses}:
            return {"name": nic["name"], "mac": nic["mac"], "wake_on": nic["wake_on"]}
    return {}


def remember(state: Path, found: Mapping[str, Any]) -> None:
    file = state / FILE
    cards = {**kept(file), **{name: card for name, card in found.items() if card}}
    write_atomic(file, f"{json.dumps(cards, indent=1)}\n".encode())


def known(inventory: Inventory) -> dict[str, NicOfNode]:
    nics = kept(inventory.state / FILE)
    for name, values in inventory.nodes.items():
        if "motley_mac" in values and name not in nics:
            nics[name] = {"mac": str(values["motley_mac"])}
    return nics


def kept(file: Path) -> dict[str, NicOfNode]:
    """What a bootstrap has kept. What is damaged it finds again."""
    cards: dict[str, NicOfNode] = read_json(file)
    return {name: card for name, card in cards.items() if isinstance(card, dict)}
