"""`./motley doctor`: runs playbooks/doctor.yml, shows the verdict; with --fix it fixes what is safe, and looks again.

Safe is a phase of bootstrap that changes neither address nor driver, and ending what an older run has left while none
is running. All else is for a person: the command stands below the finding.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from typing import Any

from console.doctor import show
from console.doctor.probe_helpers import SAFE_PHASES
from console.doctor.readings_and_findings import Finding, Probe, Verdict
from console.infra.node import Node, Silent, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.run_playbook import Passwords, ask_passwords

LAST = "doctor.json"


def run(inventory: Inventory, limit: list[str], *, as_json: bool, fix: bool, quick: bool, full: bool) -> int:
    passwords = ask_passwords(inventory)
    verdict, seconds = look(inventory, limit, passwords, quick=quick, full=full)
    if verdict is None:
        return 1
    if fix and any(finding.safe for finding in verdict.wrong):
        if not as_json:
            show_verdict(verdict, seconds)
        with interrupt.changing(), redirect_stdout(sys.stderr if as_json else sys.stdout):
            if fix_safe(inventory, verdict.wrong, passwords) == interrupt.CODE:
                return interrupt.CODE
            verdict, seconds = look(inventory, limit, passwords, quick=quick, full=full)
        if verdict is None:
            return 1
    if not limit:
        keep(inventory, verdict, seconds)
    if as_json:
        json.dump(show.as_data(verdict, seconds), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        show_verdict(verdict, seconds)
    return 0 if verdict.ok else 1


def keep(inventory: Inventory, verdict: Verdict, seconds: float) -> None:
    """Keeps the verdict for who wants to know later what was found: the page of the machines (console/dashboard)."""
    inventory.state.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"time": time.time(), **show.as_data(verdict, seconds)}, ensure_ascii=False)
    (inventory.state / LAST).write_text(text + "\n", encoding="utf-8")


def last(inventory: Inventory) -> tuple[float, list[str]]:
    """When doctor last looked at all machines, and what it said; nothing where it never did."""
    try:
        data = json.loads((inventory.state / LAST).read_text(encoding="utf-8"))
        return float(data["time"]), show.lines(from_data(data), float(data["seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, []


def show_verdict(verdict: Verdict, seconds: float) -> None:
    print("\n".join(show.lines(verdict, seconds)), flush=True)


def look(
    inventory: Inventory, limit: list[str], passwords: Passwords, *, quick: bool, full: bool
) -> tuple[Verdict | None, float]:
    reader, started = run_playbook.Reader("doctor"), time.monotonic()
    request = run_playbook.PlaybookRun(
        verb="doctor",
        playbook="doctor",
        inventory=inventory,
        limit=",".join(limit),
        variables=({"motley_doctor_load": False} if quick else {}) | ({"motley_doctor_full": True} if full else {}),
    )
    log = run_playbook.read(request, passwords, reader, "doctor")
    if not reader.reported:
        for line in run_playbook.why_not(reader, log):
            print(line, file=sys.stderr)
        print(f"✗ Ansible stopped before a verdict; its log: {run_playbook.short_path(log)}", file=sys.stderr)
        return None, 0.0
    return from_data(next(iter(reader.reported.values()))), time.monotonic() - started


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


def from_data(data: dict[str, Any]) -> Verdict:
    return Verdict(
        nodes=data["nodes"],
        probes=[Probe(**probe) for probe in data["probes"]],
        findings=[Finding(**finding) for finding in data["findings"]],
    )
