"""./motley undo: puts back what a phase found."""

from __future__ import annotations

from console.command_line.shared_options import PHASES
from console.infra import is_local
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import unknown
from console.playbook import run_playbook
from console.playbook.run_playbook import ask_passwords
from train.errors import BadInput

# What a node has that is only a folder on this machine.
OF_A_FOLDER = ("python_env", "workspace")


def undo(inventory: Inventory, *, phase: str, limit: list[str]) -> int:
    if phase not in (*PHASES, "all"):
        if phase:
            raise BadInput(unknown(f"phase '{phase}'", phase, "phases", (*PHASES, "all")))
        raise BadInput(f"undo wants a phase: ./motley undo --phase static_ip\n  phases: {', '.join(PHASES)}, all")
    if all(is_local(node) for node in inventory.nodes.values()) and phase not in (*OF_A_FOLDER, "all"):
        raise BadInput(
            f"the nodes of {inventory.path} are folders on this machine\n  of it, {phase} changed nothing to undo"
        )
    whole = phase == "all"
    request = run_playbook.PlaybookRun(
        verb="undo",
        playbook="undo",
        inventory=inventory,
        phase="" if whole else phase,
        limit=",".join(limit),
        variables={"motley_undo_all": whole},
    )
    return run_playbook.run(request, ask_passwords(inventory))
