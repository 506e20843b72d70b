"""./motley plan, launch and torchrun: their options as words for ansible-playbook, and what stands around a launch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console import launch as launches
from console import launch_request, wake, while_rented
from console.hub import FETCHED
from console.inventory.read import Inventory
from console.torchrun import command
from console.verbs import SETTINGS
from console.words import say
from train.data.look import look
from train.errors import BadInput
from train.plan.launch.what_if import what_if
from train.plan.settings.config import read_yaml

OF_REAL_MACHINES = ("resume", *launch_request.LAUNCH_ONLY)


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


def plan_for_cards(cards: str, *, as_json: bool, settings: list[str], **asked: Any) -> int:
    """For machines that need not exist: no inventory is read, and nothing is connected to."""
    if not as_json:
        say(launches.CHECKING)
    values: dict[str, Any] = {}
    launch_request.as_words(settings)  # refuses what is none
    for setting in settings:
        name, _, value = setting.partition("=")
        values |= read_yaml(Path(setting[1:]), "file") if setting.startswith("@") else {name: value}
    values |= dict(pair.split("=", 1) for pair in pairs_of(asked))
    if real := [name for name in OF_REAL_MACHINES if name in values]:
        raise BadInput(f"{real[0]}: it does not go with --cards", fix="leave one of the two out")
    answer = what_if(cards, values, FETCHED)
    data = look(answer.request)
    lines = [*answer.lines, *(["", f"{answer.request.dataset.reason}: {data['words']}"] if data else [])]
    say(json.dumps(answer.data | {"examples": data}) if as_json else "\n".join(lines))
    return 0 if answer.fits else 1


def pairs_of(named: dict[str, Any]) -> list[str]:
    return [f"{SETTINGS.get(name, name)}={value}" for name, value in named.items() if value]


def launch_words(*, vault: str, verbose: bool, settings: list[str], **named: str) -> list[str]:
    """The words of a launch for ansible-playbook."""
    pairs = pairs_of(named)
    flags = [*(["--ask-vault-pass"] if vault else []), *(["-v"] if verbose else [])]
    return [*flags, *launch_request.as_words([*settings, *pairs])]
