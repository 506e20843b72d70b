#!/usr/bin/python
# MIT License, see LICENSE
"""Find out where each node answers, and that it is the node whose key was pinned. Runs on the controller."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ansible.module_utils.motley import hostkeys
from ansible.module_utils.motley.documented import module_of

DOCUMENTATION = r"""
module: first_contact
short_description: Find nodes by their pinned host keys
author: Motley
description:
  - Looks at every address a node may have and returns which one shows its pinned key.
  - Pins new nodes when O(accept=true), makes the controller's own key, and changes nothing on any node.
options: {
  "nodes": {"type": "list", "elements": "dict", "required": true,
    "description": "name, addresses (the wanted one first), port"},
  "state_folder": {"type": "path", "required": true, "description": "Holds known_hosts and the controller's key"},
  "accept": {"type": "bool", "default": false, "description": "Pin the keys of nodes seen for the first time"},
  "forget": {"type": "list", "elements": "str", "default": [], "description": "Nodes whose pin is dropped first"},
  "prefer_s": {"type": "float", "default": 0, "description": "Seconds to insist on the first address (one node only)"},
  "wait_s": {"type": "float", "default": 0, "description": "Seconds to wait for any answer (one node only)"}
}
"""
EXAMPLES = r"""
- name: See who answers, and with which host key
  first_contact:
    nodes:
      - {name: gpu-master, addresses: [192.168.1.100, 192.168.1.23], port: 22}
    state_folder: .motley
  delegate_to: localhost
  run_once: true
"""
RETURN = r"""
contacts: {type: dict, returned: always, description: "Node to state, address, fingerprint"}
strangers: {type: list, elements: str, returned: always, description: Nodes whose key is not pinned}
controller_key: {type: str, returned: always, description: The controller's own public key}
host_keys: {type: dict, returned: always, description: Node to its host key}
"""


def main() -> None:
    module = module_of(DOCUMENTATION)
    wants = module.params
    folder = Path(wants["state_folder"])
    known_hosts = folder / "known_hosts"
    places = [
        hostkeys.NodeAddresses(node["name"], tuple(dict.fromkeys(node["addresses"])), int(node.get("port") or 22))
        for node in wants["nodes"]
    ]
    if wants["forget"]:
        hostkeys.forget(wants["forget"], known_hosts)
    start = time.monotonic()
    if wants["wait_s"]:
        contacts = [hostkeys.wait_for(place, known_hosts, wants["prefer_s"], wants["wait_s"]) for place in places]
    else:
        contacts = hostkeys.look(places, known_hosts)
    ports = {place.name: place.port for place in places}
    off = [contact for contact in contacts if contact.state == "off" and not contact.twin]
    with ThreadPoolExecutor(max(1, len(off))) as pool:
        for contact, found in zip(off, pool.map(lambda one: hostkeys.knock(one.tried, ports[one.name]), off)):  # noqa: B905
            contact.knock = found
    if wants["accept"]:
        hostkeys.pin(contacts, known_hosts)
    module.exit_json(
        changed=False,
        waited_s=round(time.monotonic() - start, 1),
        contacts={contact.name: contact.as_dict() for contact in contacts},
        strangers=[contact.name for contact in contacts if contact.state == "new" and not wants["accept"]],
        controller_key=hostkeys.own_key(folder / "controller_ed25519"),
        host_keys={name: key for name, (key, _) in hostkeys.read_pins(known_hosts).items()}
        | {contact.name: contact.key for contact in contacts if contact.state == "new"},
    )


if __name__ == "__main__":
    main()
