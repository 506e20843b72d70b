"""Asks for the passwords of the machines once, and keeps them in memory alone."""

from __future__ import annotations

import getpass
import os
import sys
from dataclasses import dataclass

from console.infra import is_local
from console.inventory.read import Inventory


@dataclass(frozen=True, slots=True)
class Passwords:
    login: str
    sudo: str


def ask_passwords(inventory: Inventory) -> Passwords:
    """Asked once and kept in memory. MOTLEY_PASSWORD answers where nobody can; it is taken out of the environment."""
    far = [node for node in inventory.nodes.values() if not is_local(node)]
    users = dict.fromkeys(str(node["ansible_user"]) for node in far if "ansible_user" in node)
    if not users:  # a login node without one is reached by its owner's keys
        return Passwords("", "")
    user = "/".join(users)
    given = os.environ.pop("MOTLEY_PASSWORD", None)
    other = os.environ.pop("MOTLEY_SUDO_PASSWORD", None)
    login = given if given is not None else _ask(f"password for {user} (asked once, kept in memory): ")
    if os.environ.get("SUDO_PASSWORD") == "ask" and other is None:
        other = _ask(f"password of {user} for sudo: ")
    return Passwords(login, other if other is not None else login)


def _ask(question: str) -> str:
    return getpass.getpass(question) if sys.stdin.isatty() else ""
