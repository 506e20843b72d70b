"""What `./motley doctor --fix` does by itself of what it has found.

Safe is a phase of bootstrap that changes neither address nor driver, and ending what an older run has left while none
is running. All else is for a person: the command stands below the finding.
"""

from __future__ import annotations

from console.doctor.probe_helpers import SAFE_PHASES
from console.doctor.readings_and_findings import Finding
from console.infra.node import Node, Silent, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.ask_passwords import Passwords


def fix_safe(inventory: Inventory, wrong: list[Finding], passwords: Passwords) -> int:
    """Fixes what is safe, and says of each finding whether that is done. 130 where somebody stopped it."""
    print()
    for finding in wrong:
        word = "does now" if finding.safe else "leaves to you"
        print(f"FIX {word}: {finding.node}  {finding.probe}: {finding.fix}")
    stopped = [finding.node for finding in wrong if finding.safe and not finding.phase]
    for node in from_inventory(inventory):
        if node.name in stopped:
            end_what_is_left(node)
    for phases, nodes in nodes_by_phases(wrong).items():
        request = run_playbook.PlaybookRun(
            verb="doctor-fix",
            playbook="bootstrap",
            inventory=inventory,
            phase=",".join(phases),
            limit=",".join(nodes),
            variables={"motley_preflight_apt_wait_s": 20},  # that apt is busy has been reported already
            typed="./motley doctor --fix",
        )
        if run_playbook.run(request, passwords) == interrupt.CODE:
            return interrupt.CODE
    return 0


def end_what_is_left(node: Node) -> None:
    try:
        answer = node.stop(timeout_s=20)
    except Silent as why:
        print(f"{node.name}  {why}")
        return
    print(f"{node.name}  {'it does not end' if answer['left'] else 'ended processes of an older run'}")


def nodes_by_phases(wrong: list[Finding]) -> dict[tuple[str, ...], list[str]]:
    """Nodes that need the same phases are fixed together, phases in bootstrap's own order."""
    wanted: dict[str, set[str]] = {}
    for finding in wrong:
        if finding.safe and finding.phase:
            wanted.setdefault(finding.node, set()).add(finding.phase)
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, phases in wanted.items():
        groups.setdefault(tuple(phase for phase in SAFE_PHASES if phase in phases), []).append(node)
    return groups
