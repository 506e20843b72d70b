"""Finds out where each node answers, and that it is the node whose key was pinned."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from console.controller_action import Facts, OnController
from plugins.module_utils.motley import hostkeys
from plugins.module_utils.motley.hostkeys import Contact, NodeAddresses

OPTIONS = {
    "nodes": {"type": "list", "elements": "dict", "required": True},
    "state_folder": {"type": "path", "required": True},
    "accept": {"type": "bool", "default": False},
    "agreed": {"type": "dict", "default": {}},
    "forget": {"type": "list", "elements": "str", "default": []},
    "prefer_s": {"type": "float", "default": 0.0},
    "wait_s": {"type": "float", "default": 0.0},
}


class ActionModule(OnController):
    def answer(self, known: Facts, args: Facts) -> Facts:
        wants: Facts = self.validate_argument_spec(OPTIONS)[1]
        folder = Path(wants["state_folder"])
        known_hosts = folder / "known_hosts"
        if wants["forget"]:
            hostkeys.forget(wants["forget"], known_hosts)
        # Keys that a person has seen. Whatever another look would find, they have not agreed to that.
        shown = [Contact(name=name, state="new", key=key) for name, key in wants["agreed"].items()]
        if shown:
            hostkeys.pin(shown, known_hosts)
        start = time.monotonic()
        contacts = found(places_of(wants["nodes"]), known_hosts, wants["prefer_s"], wants["wait_s"])
        if wants["accept"]:
            hostkeys.pin(contacts, known_hosts)
        new = [contact for contact in contacts if contact.state == "new"]
        pins = {name: key for name, (key, _) in hostkeys.read_pins(known_hosts).items()}
        return {
            "waited_s": round(time.monotonic() - start, 1),
            "contacts": {contact.name: asdict(contact) for contact in contacts},
            "strangers": [] if wants["accept"] else [contact.name for contact in new],
            "controller_key": hostkeys.own_key(folder / "controller_ed25519"),
            "host_keys": pins | {contact.name: contact.key for contact in new},
        }


def places_of(nodes: list[Facts]) -> list[NodeAddresses]:
    return [
        NodeAddresses(
            node["name"],
            tuple(dict.fromkeys(node["addresses"])),
            int(node.get("port") or 22),
            str(node.get("options") or ""),
        )
        for node in nodes
    ]


def found(places: list[NodeAddresses], known_hosts: Path, prefer_s: float, wait_s: float) -> list[Contact]:
    """Where each is, waited for if that is asked; of one that is off, what answers a knock."""
    if wait_s:
        contacts = [hostkeys.wait_for(place, known_hosts, prefer_s, wait_s) for place in places]
    else:
        contacts = hostkeys.look(places, known_hosts)
    named = {place.name: place for place in places}
    off = [contact for contact in contacts if contact.state == "off" and not contact.twin]
    with ThreadPoolExecutor(max(1, len(off))) as pool:
        knocks = pool.map(lambda contact: knock_of(named[contact.name]), off)
        for contact, knock in zip(off, knocks, strict=True):
            contact.knock = knock
    return contacts


def knock_of(place: NodeAddresses) -> str:
    found = hostkeys.knock([*place.addresses], place.port)
    return "behind" if found == "nobody" and hostkeys.is_behind(place.addresses[0], place.options) else found
