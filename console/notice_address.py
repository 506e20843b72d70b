"""The address of `motley_notify`: out of ansible-vault to the nodes, which send (train/cluster/notifier.py)."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from console import hub
from console.infra.node import ask_all, from_inventory
from console.inventory.read import Inventory
from console.strict_yaml import Vaulted
from console.text_layout import say
from train.errors import BadInput

ROOT = Path(__file__).parents[1]
KEY = "motley_notify"


def unlocked(values: Mapping[str, Any]) -> str:
    """The address, inside Ansible, which has the vault's password. BadInput where it has not: nobody would be told."""
    return hub.unlocked(values, KEY)


def plan_lines(where: str) -> list[str]:
    """Where the address will lie; nothing where there is none."""
    return [f"  messages  the nodes send them: the address of {KEY} lies {where}"] if where else []


def written(inventory: Inventory) -> Any:
    return next((values[KEY] for values in inventory.nodes.values() if KEY in values), "")


def address_of(inventory: Inventory, vault: str) -> str:
    """The address, decrypted; empty where none is set."""
    locked = written(inventory)
    if not isinstance(locked, Vaulted):
        return ""  # the inventory's check refuses plain text
    ask = ["--ask-vault-pass"] if vault else []
    command = [str(Path(sys.executable).with_name("ansible-vault")), "decrypt", *ask, "--output", "-"]
    done = subprocess.run(command, input=locked, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode:
        locked_still = f"{KEY} is locked by ansible-vault\nfix: add --vault ask"
        raise BadInput(f"this password does not open {KEY}" if vault else locked_still)
    return done.stdout.strip()


def test(inventory: Inventory, *, vault: str) -> int:
    """Has each node send a message, and says which could not."""
    if not (address := address_of(inventory, vault)):
        raise BadInput(f"{KEY} is not set: no messages are sent\nfix: docs/training.md#a-message-when-it-is-done")
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.try_notify(address))
    found = silent | {name: str(answer["why"]) for name, answer in answers.items()}
    width = max(len(node.name) for node in nodes)
    for node in nodes:
        why = found[node.name]
        say(f"✗ {node.name:<{width}}  {why}" if why else f"✓ {node.name:<{width}}  sent")
    say("  the node that hosts a run sends messages, or another that can")
    return 1 if any(found.values()) else 0
