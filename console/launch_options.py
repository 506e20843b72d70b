"""./motley plan, launch and torchrun: their options as words for ansible-playbook, and what stands around a launch."""

from __future__ import annotations

from typing import Any

from console import launch as launches
from console import launch_request, wake, while_rented
from console.inventory.read import Inventory
from console.torchrun import command
from console.verbs import SETTINGS


def plan(inventory: Inventory, *, as_json: bool, **asked: Any) -> int:
    return launches.plan(inventory, launch_words(**asked), as_json=as_json)


def launch(
    inventory: Inventory, *, as_json: bool, follow: bool, yes: bool, wake_up: bool, page: bool, **asked: Any
) -> int:
    pairs = dict(setting.partition("=")[::2] for setting in asked["settings"])
    nodes, then = (asked[name] or pairs.get(name, "") for name in ("nodes", "then"))
    if then in launches.WHAT_FOLLOWS and not launches.agreed_to(inventory, nodes, then, yes=yes):
        return 1
    with while_rented.used(inventory):
        if wake_up:  # who does not wake is said; whether the launch can do without is the plan's to say
            wake.wake(inventory, nodes.replace(",", " ").split())
        return launches.launch(inventory, launch_words(**asked), as_json=as_json, following=follow, page=page)


def torchrun(inventory: Inventory, **asked: Any) -> int:
    with while_rented.used(inventory):
        return command.torchrun(inventory, **asked)


def launch_words(*, vault: str, verbose: bool, settings: list[str], **named: str) -> list[str]:
    """The words of a launch for ansible-playbook."""
    pairs = [f"{SETTINGS.get(name, name)}={value}" for name, value in named.items() if value]
    flags = [*(["--ask-vault-pass"] if vault else []), *(["-v"] if verbose else [])]
    return [*flags, *launch_request.as_words([*settings, *pairs])]
