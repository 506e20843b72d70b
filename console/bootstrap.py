"""./motley bootstrap: from machines that know a password only to a cluster, or one phase of it."""

from __future__ import annotations

import os

from console import ask_about_new_keys
from console.command_line.shared_options import PHASES
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import unknown
from console.playbook import restart, run_playbook
from console.playbook.ask_passwords import ask_passwords
from train.errors import BadInput


def bootstrap(
    inventory: Inventory,
    *,
    phase: str,
    limit: list[str],
    check: bool,
    rollback: bool,
    repin: list[str],
    reboot: str,
    sudo_password: str,
    verbose: bool,
) -> int:
    if phase and phase not in PHASES:
        raise BadInput(unknown(f"phase '{phase}'", phase, "phases", PHASES))
    if rollback and phase != "python_env":
        raise BadInput(
            "only the Python environment can be rolled back: ./motley bootstrap --phase python_env --rollback"
        )
    os.environ |= {"VERBOSE": "1"} if verbose else {}
    os.environ |= {"SUDO_PASSWORD": "ask"} if sudo_password else {}
    os.environ |= {"REBOOT": "yes"} if reboot else {}
    if not ask_about_new_keys.pin_new(inventory, limit, repin):
        raise BadInput("the host keys were not accepted: nothing was changed")
    request = run_playbook.PlaybookRun(
        verb="bootstrap",
        playbook="bootstrap",
        inventory=inventory,
        phase=phase,
        limit=",".join(limit),
        check=check,
        variables={"motley_python_env_rollback": True} if rollback else {},
    )
    return restart.run(request, ask_passwords(inventory))
