"""The few shapes that playbooks need and Jinja makes ugly; pure functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

from ansible.errors import AnsibleFilterError

from console import wake
from console.inventory.keys import is_folder
from console.playbook.ansible_events import Contact
from plugins.module_utils.motley.listening_ports import Service
from plugins.module_utils.motley.try_key import Login
from train.plan.run_name import is_name

SSH_OPTIONS = ("ansible_ssh_common_args", "ansible_ssh_extra_args")


class Place(TypedDict):
    name: str
    addresses: list[str]
    port: int
    options: str


def motley_places(names: list[str], hostvars: Any) -> list[Place]:
    """What first_contact asks of each node: its name and the addresses where it may answer, the wanted one first."""
    return [
        {
            "name": name,
            "addresses": [
                str(hostvars[name][key])
                for key in ("motley_address", "motley_current_address")
                if key in hostvars[name]
            ],
            "port": int(hostvars[name].get("ansible_port", 22)),
            "options": " ".join(str(hostvars[name].get(key, "")) for key in SSH_OPTIONS),
        }
        for name in names
    ]


def motley_logins(names: list[str], hostvars: Any, contacts: dict[str, Contact]) -> list[Login]:
    """What login_probe asks of each node: who logs in, and where it answers."""
    return [
        {
            "name": name,
            "user": str(hostvars[name]["ansible_user"]),
            "address": str(contacts[name]["address"]),
            "port": int(hostvars[name].get("ansible_port", 22)),
        }
        for name in names
    ]


def motley_addresses(names: list[str], hostvars: Any) -> dict[str, str]:
    """Name -> the address it has or is to have, in the cluster's order."""
    return {name: str(hostvars[name]["motley_address"]) for name in names}


def motley_friends(names: list[str], hostvars: Any, controller: str) -> list[str]:
    """The addresses that may call: of all nodes, and of the controller. Where it is one of the nodes, not by an address
    that this node had at first contact: it may be moving to another."""
    was = {address for place in motley_places(names, hostvars) for address in place["addresses"]}
    return [
        *motley_addresses(names, hostvars).values(),
        *([controller] if controller and controller not in was else []),
    ]


def motley_guarded(ranges: list[str], ssh_ports: list[int]) -> list[str]:
    """The ranges, each as FIRST-LAST, without the ports where SSH listens: nobody is to be shut out of the machine."""
    found = []
    for word in ranges:
        low, high = ports_of(word)
        for port in sorted(port for port in set(ssh_ports) if low <= port <= high):
            found += [f"{low}-{port - 1}"] if low < port else []
            low = port + 1
        found += [f"{low}-{high}"] if low <= high else []
    return found


def ports_of(word: str) -> tuple[int, int]:
    low, _, high = word.partition("-")
    return int(low), int(high or low)


def motley_guarded_services(services: list[Service], ranges: list[str]) -> str:
    """What others could call until now and cannot from now on; empty where there is none."""
    pairs = [ports_of(word) for word in ranges]
    hit = [service for service in services if any(low <= service["port"] <= high for low, high in pairs)]
    programs = ", ".join(f"{service['program']} on port {service['port']}" for service in hit)
    return f"{programs} can be called by the nodes and the controller alone (docs/machines.md#firewall)" if hit else ""


def motley_name(reported: str) -> str:
    """What one node reports, where it becomes a folder on the others."""
    if not is_name(reported):
        raise AnsibleFilterError(f"a node reports the name {reported!r}, which cannot be a folder's")
    return reported


def motley_ufw_allow(friend_and_ports: tuple[str, str]) -> dict[str, list[str]]:
    """One ufw rule of undoable_state, before all others: a rule of the owner's that denies may come after."""
    friend, ports = friend_and_ports
    rule = ["allow", "from", friend, "to", "any", "port", ports.replace("-", ":"), "proto", "tcp"]
    return _ufw("prepend", rule)


def motley_ufw_deny(ports: str) -> dict[str, list[str]]:
    """Everybody else, also where ufw lets in what no rule names."""
    return _ufw("", ["deny", f"{ports.replace('-', ':')}/tcp"])


def _ufw(place: str, rule: list[str]) -> dict[str, list[str]]:
    return {
        "check": ["sh", "-c", f"ufw show added | grep -qxF 'ufw {' '.join(rule)}'"],
        "run": ["ufw", *([place] if place else []), *rule],
        "undo": ["ufw", "delete", *rule],
    }


class FilterModule:
    def filters(self) -> dict[str, Callable[..., object]]:
        return {
            "motley_places": motley_places,
            "motley_logins": motley_logins,
            "motley_addresses": motley_addresses,
            "motley_friends": motley_friends,
            "motley_guarded": motley_guarded,
            "motley_guarded_services": motley_guarded_services,
            "motley_is_folder": is_folder,
            "motley_name": motley_name,
            "motley_nic_of": wake.nic_of,
            "motley_ufw_allow": motley_ufw_allow,
            "motley_ufw_deny": motley_ufw_deny,
        }
