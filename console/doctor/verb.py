"""`make doctor`: runs playbooks/doctor.yml, shows the verdict, and with FIX=yes does what is safe and looks again.

Safe is a phase of bootstrap that changes neither address nor driver, and ending what an older run has left while none
is on. All else is for a person: the command stands below the finding.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from console import interrupt, play
from console.doctor import show
from console.doctor.common import SAFE_PHASES
from console.doctor.readings import Finding, Probe, Verdict
from console.infra.choose import from_inventory
from console.infra.node import Node, Silent
from console.inventory.read import Inventory
from console.progress import Progress

ENDED_BY_STOP = "make stop"


class _Reader(Progress):
    """Keeps the verdict that the last task of the playbook reports."""

    __slots__ = ("verdict",)

    def __init__(self) -> None:
        super().__init__()
        self.verdict: dict[str, Any] = {}

    def take(self, event: dict[str, Any]) -> None:
        super().take(event)
        data = (event.get("event_data") or {}).get("res") or {}
        if "doctor" in data:
            self.verdict = data["doctor"]


def run(inventory: Inventory, limit: str, *, as_json: bool, fix: bool, quick: bool, full: bool) -> int:
    passwords = play.ask_passwords(inventory)
    verdict, seconds = look(inventory, limit, passwords, quick=quick, full=full)
    if verdict is None:
        return 1
    if fix and any(finding.safe for finding in verdict.wrong):
        if not as_json:
            show_verdict(verdict, seconds)
        if fix_safe(inventory, verdict.wrong, passwords, quiet=as_json) == interrupt.CODE:
            return interrupt.CODE
        verdict, seconds = look(inventory, limit, passwords, quick=quick, full=full)
        if verdict is None:
            return 1
    if as_json:
        json.dump(show.as_data(verdict, seconds), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        show_verdict(verdict, seconds)
    return 0 if verdict.ok else 1


def show_verdict(verdict: Verdict, seconds: float) -> None:
    print("\n".join(show.lines(verdict, seconds)), flush=True)


def look(
    inventory: Inventory, limit: str, passwords: play.Passwords, *, quick: bool, full: bool
) -> tuple[Verdict | None, float]:
    reader, started = _Reader(), time.monotonic()
    request = play.PlaybookRun(
        verb="doctor",
        playbook="doctor",
        inventory=inventory,
        limit=limit,
        variables=({"motley_doctor_load": False} if quick else {}) | ({"motley_doctor_full": True} if full else {}),
    )
    log = play.read(request, passwords, reader, "doctor")
    if not reader.verdict:
        for line in play.why_not(reader, log):
            print(line, file=sys.stderr)
        print(f"✗ Ansible did not get as far as a verdict; its log: {play.short_path(log)}", file=sys.stderr)
        return None, 0.0
    return from_data(reader.verdict), time.monotonic() - started


def from_data(data: dict[str, Any]) -> Verdict:
    return Verdict(
        nodes=data["nodes"],
        probes=[Probe(**probe) for probe in data["probes"]],
        findings=[Finding(**finding) for finding in data["findings"]],
    )


# -- fixing ---------------------------------------------------------------------------------------------------------


def fix_safe(inventory: Inventory, wrong: list[Finding], passwords: play.Passwords, *, quiet: bool) -> int:
    """The safe ones; says of each finding whether it was done. 130 where somebody stopped it."""
    say = (lambda _: None) if quiet else print
    say("")
    for finding in wrong:
        word = "does now" if finding.safe else "leaves to you"
        say(f"FIX {word}: {finding.node}  {finding.probe}: {finding.fix}")
    stopped = [finding.node for finding in wrong if finding.safe and not finding.phase]
    for node in from_inventory(inventory):
        if node.name in stopped:
            end_what_is_left(node, say)
    for nodes, phases in by_nodes(wrong).items():
        request = play.PlaybookRun(
            verb="doctor-fix",
            playbook="bootstrap",
            inventory=inventory,
            phase=",".join(phases),
            limit=",".join(nodes),
            variables={"motley_preflight_apt_wait_s": 20},  # that apt is busy has been reported already
            typed="make doctor FIX=yes",
        )
        if play.run(request, passwords) == interrupt.CODE:
            return interrupt.CODE
    return 0


def end_what_is_left(node: Node, say: Any) -> None:
    try:
        answer = node.stop(timeout_s=20)
    except Silent as why:
        say(f"{node.name}  {why}")
        return
    say(f"{node.name}  ended what an older run had left" if not answer["left"] else f"{node.name}  it does not end")


def by_nodes(wrong: list[Finding]) -> dict[tuple[str, ...], list[str]]:
    """Nodes that need the same phases are fixed together, phases in bootstrap's own order."""
    wanted: dict[str, set[str]] = {}
    for finding in wrong:
        if finding.safe and finding.phase:
            wanted.setdefault(finding.node, set()).add(finding.phase)
    groups: dict[tuple[str, ...], list[str]] = {}
    for phases in {tuple(phase for phase in SAFE_PHASES if phase in chosen) for chosen in wanted.values()}:
        nodes = tuple(node for node, chosen in wanted.items() if chosen == set(phases))
        groups[nodes] = list(phases)
    return groups
