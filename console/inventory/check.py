"""Checks an inventory before anything is connected to: every finding at once, in well under a second.

python -m console check [--inventory inventory/homelab]
"""

from __future__ import annotations

from pathlib import Path

from console.inventory import rules
from console.inventory.keys import KEYS, role_keys
from console.inventory.read import Inventory, hosts_file, programs, read
from console.inventory.what_is_wrong import Finding
from console.strict_yaml import YamlError


def check(path: Path, roles: Path | None = None) -> Inventory:
    """Read and judge an inventory folder (or its hosts.yml)."""
    inventory, file = Inventory(path=path), path
    keys = {**role_keys(roles or Path(__file__).parents[2] / "roles"), **KEYS}
    try:
        file = hosts_file(path)
        read(file, inventory, keys)
        inventory.findings += [program_too_many(program) for program in programs(path) if program != file]
    except FileNotFoundError:
        if not path.exists() and path.name != "homelab":
            inventory.findings.append(
                Finding(what="it does not exist", where=str(path), fix="name another --inventory")
            )
            return inventory
        fix = "./motley inventory asks and writes it (examples/hosts.yml shows one); or yours: --inventory FOLDER"
        inventory.findings.append(Finding(what="no machines are described yet", where=str(file), fix=fix))
    except YamlError as wrong:
        inventory.findings.append(Finding(what=wrong.what, where=wrong.where, fix=wrong.fix))
    except OSError as wrong:
        what = f"it cannot be read: {wrong.strerror}"
        inventory.findings.append(Finding(what=what, where=str(wrong.filename or file), fix="look at it: ls -ld"))
    if inventory.nodes:
        where = str(file)
        for rule in rules.RULES:
            inventory.findings.extend(rule(inventory.nodes, where))
        inventory.notes.extend(rules.guarded_ssh(inventory.nodes, where))
        inventory.findings = list(dict.fromkeys(inventory.findings))  # what all nodes share is reported once
    return inventory


def program_too_many(program: Path) -> Finding:
    fix = "if it prints your machines, call it hosts.sh; else take it out of this folder"
    return Finding(what="Ansible would run this program, and take its machines too", where=str(program), fix=fix)


def show(inventory: Inventory) -> int:
    """./motley check: the machines of an inventory that has nothing to fix."""
    width = max(map(len, inventory.nodes))
    for place, (name, values) in enumerate(inventory.nodes.items()):
        card = values.get("motley_gpu", "")
        at = values.get("motley_address") or values.get("ansible_host", "")
        print(f"  {name:<{width}}  {at:<15}  {card:<14}  {'head' if place == 0 else ''}".rstrip())
    for note in inventory.notes:
        print(f"  · {note}")
    print("the inventory is good")
    return 0
