"""For ./motley bootstrap: shows the host keys of machines never seen before, and pins them once a person has agreed."""

from __future__ import annotations

import os
import sys

from console.infra import is_local
from console.inventory.keys import Nodes, Variables
from console.inventory.read import Inventory
from console.text_layout import agreed
from plugins.module_utils.motley import hostkeys

HOW_TO_COMPARE = "ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"


def addresses_of(nodes: Nodes, only: list[str]) -> list[hostkeys.NodeAddresses]:
    found = []
    for name, values in nodes.items():
        if (not only or name in only) and not is_local(values):
            keys = ("motley_address", "motley_current_address") if is_template(values) else ("ansible_host",)
            addresses = dict.fromkeys(str(values[key]) for key in keys if key in values)
            found.append(hostkeys.NodeAddresses(name, tuple(addresses), int(str(values.get("ansible_port", 22)))))
    return found


def is_template(values: Variables) -> bool:
    """Whether ansible_host is a template of the other two, as group_vars have it. A machine elsewhere gives its own."""
    return "{{" in str(values.get("ansible_host", "{{"))


def pin_new(inventory: Inventory, only: list[str], repin: list[str]) -> bool:
    """True when no unknown host key is left. Asks on a terminal; elsewhere MOTLEY_ACCEPT_KEYS=yes is the answer."""
    known_hosts = inventory.state / "known_hosts"
    if repin:
        hostkeys.forget(repin, known_hosts)
    wanted = addresses_of(inventory.nodes, only)
    pins = hostkeys.read_pins(known_hosts)
    if all(node.name in pins for node in wanted):
        return True
    contacts = hostkeys.look([node for node in wanted if node.name not in pins], known_hosts)
    new = [contact for contact in contacts if contact.state == "new"]
    if new and not accepted(new):
        return False
    hostkeys.pin(new, known_hosts)
    return True


def accepted(new: list[hostkeys.Contact]) -> bool:
    print(f"first contact: please compare once with each machine's own screen ({HOW_TO_COMPARE})")
    for contact in new:
        print(f"  {contact.name}  {contact.address}  {contact.fingerprint}")
    if os.environ.get("MOTLEY_ACCEPT_KEYS") == "yes":
        print("accepted (MOTLEY_ACCEPT_KEYS=yes)")
        return True
    if not sys.stdin.isatty():
        print(
            "nobody is here to say yes: run it in a terminal, or compare and set MOTLEY_ACCEPT_KEYS=yes",
            file=sys.stderr,
        )
        return False
    return agreed("all right?")
