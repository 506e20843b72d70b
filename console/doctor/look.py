"""`./motley doctor`: runs playbooks/doctor.yml, shows the verdict; with --fix it fixes (fix.py) and looks again."""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout
from typing import Any

from console.doctor import show
from console.doctor.fix import fix_safe
from console.doctor.readings_and_findings import Finding, Probe, Verdict
from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.ask_passwords import Passwords, ask_passwords

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


def from_data(data: dict[str, Any]) -> Verdict:
    return Verdict(
        nodes=data["nodes"],
        probes=[Probe(**probe) for probe in data["probes"]],
        findings=[Finding(**finding) for finding in data["findings"]],
    )
