"""./motley plan, launch and torchrun: their options as words for ansible-playbook, and what stands around a launch."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from console import launch_playbook, launch_request, wake, while_rented
from console import run_file as files
from console.command_line.shared_options import SETTINGS
from console.extra_vars import extra_vars, values_of
from console.hub import FETCHED
from console.infra.node import from_inventory
from console.inventory.read import Inventory
from console.text_layout import beside_data, say
from console.torchrun import request, script_view
from train.data.look import look
from train.errors import BadInput
from train.plan.launch.plan_cards import ABOUT_MACHINES, what_if

OF_REAL_MACHINES = ("resume", *launch_request.LAUNCH_ONLY)


def plan(inventory: Inventory, *, as_json: bool, **asked: Any) -> int:
    return launch_playbook.plan(inventory, launch_words(quiet=as_json, **asked), as_json=as_json)


def launch(
    inventory: Inventory, *, as_json: bool, follow: bool, yes: bool, wake_up: bool, page: bool, **asked: Any
) -> int:
    asked = with_file(quiet=as_json, **asked)
    try:
        values = values_of(asked["settings"], read_files=True)
    except BadInput:  # a file that is locked: Ansible alone can read it, and says what is wrong with any other
        values = values_of(asked["settings"])
    nodes, then = (asked[name] or as_text(values.get(name, "")) for name in ("nodes", "then"))
    names = [] if nodes == "all" else nodes.replace(",", " ").split()
    with beside_data(as_json=as_json):
        if then in launch_playbook.WHAT_FOLLOWS and not launch_playbook.agreed_to(inventory, names, then, yes=yes):
            return 1
    with while_rented.used(inventory, as_json=as_json):
        if wake_up:  # who does not wake is said; whether the launch can do without is the plan's to say
            with beside_data(as_json=as_json):
                wake.wake(inventory, names)
        how: dict[str, Any] = {"as_json": as_json, "following": follow, "page": page}
        report_to = as_text(values.get("report_to", ""))
        return launch_playbook.launch(inventory, launch_words(**asked), **how, report_to=report_to)


def torchrun(
    inventory: Inventory, *, words: list[str], script: str, module: str, run: str, limit: list[str], verbose: bool
) -> int:
    """A script that knows nothing of Motley: the playbook up to the start, as with launch; then what it prints."""
    with while_rented.used(inventory):
        asked = request.read([*request.split(script), *words], module=module, run=run)
        extra = json.dumps({"motley_plan_script": asdict(asked)})
        flags = [*(["--limit", ",".join(limit)] if limit else []), *(["-v"] if verbose else [])]
        started = launch_playbook.started_by(inventory, "playbooks/torchrun.yml", [*flags, "-e", extra])
        if isinstance(started, int):
            return started
        nodes = [node for node in from_inventory(inventory) if node.name in started["nodes"]]
        return script_view.show(nodes, script_view.ScriptView(started["run"], started["since"]))


def plan_for_cards(cards: str, *, as_json: bool, settings: list[str], **asked: Any) -> int:
    """Plans for machines that need not exist: no inventory is read, and nothing is connected to."""
    if not as_json:
        say(launch_playbook.CHECKING)
    asked = with_file(quiet=as_json, also=ABOUT_MACHINES, settings=settings, **asked)
    del asked["vault"], asked["verbose"]
    values = values_of(asked.pop("settings"), read_files=True)
    values |= dict(pair.split("=", 1) for pair in pairs_of(asked))
    if real := [name for name in OF_REAL_MACHINES if name in values]:
        raise BadInput(f"{real[0]}: it does not go with --cards", fix="leave one of the two out")
    answer = what_if(cards, values, FETCHED)
    data = look(answer.request)
    lines = [*answer.lines, *(["", f"{answer.request.dataset.reason}: {data['words']}"] if data else [])]
    say(json.dumps(answer.data | {"examples": data}) if as_json else "\n".join(lines))
    return 0 if answer.fits else 1


def with_file(
    *,
    settings: list[str],
    run_file: str = "",
    vault: str = "",
    verbose: bool = False,
    quiet: bool = False,
    also: Iterable[str] = (),
    **named: str,
) -> dict[str, Any]:
    """What was asked for, with the variables of the run's file behind what was typed. What is typed wins, and each line
    of the file that does not count is shown. `quiet`: not among data. `also`: further names that the file may have."""
    if run_file:
        typed = values_of([*settings, *pairs_of(named)])
        of_file = files.read(Path(run_file), also)
        for line in files.given_way(of_file, typed):
            print(line, file=sys.stderr) if quiet else say(line)
        settings = [json.dumps({name: value for name, value in of_file.items() if name not in typed}), *settings]
    return {"settings": settings, "vault": vault, "verbose": verbose, **named}


def as_text(value: Any) -> str:
    """The value as it would be typed; empty for one that is null in a file."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value if value is not None else "")


def pairs_of(named: dict[str, Any]) -> list[str]:
    return [f"{SETTINGS.get(name, name)}={value}" for name, value in named.items() if value]


def launch_words(*, quiet: bool = False, **asked: Any) -> list[str]:
    """The words of a launch for ansible-playbook."""
    asked = with_file(quiet=quiet, **asked)
    vault, verbose, settings = (asked.pop(name) for name in ("vault", "verbose", "settings"))
    flags = [*(["--ask-vault-pass"] if vault else []), *(["-v"] if verbose else [])]
    return [*flags, *extra_vars([*settings, *pairs_of(asked)])]
