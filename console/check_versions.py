"""`./motley check-versions`: one table of what must agree between the nodes and what may differ; odd ones marked.

train/plan/machines/odd_versions.py judges; playbooks/check-versions.yml reads the nodes.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path

from console.inventory.read import Inventory
from console.playbook import interrupt, run_playbook
from console.playbook.playbook_progress import NodeProgress
from console.playbook.run_playbook import Passwords, ask_passwords
from console.text_layout import counted, drawn
from train.plan.machines.odd_versions import Versions, VersionTable, judge


def as_data(verdict: VersionTable) -> dict[str, object]:
    return {
        "ok": verdict.ok,
        "nodes": verdict.nodes,
        "off": verdict.off,
        "versions": verdict.rows,
        "failures": [asdict(odd) | {"fix": odd.fix_on()} for odd in verdict.odd],
    }


def table(verdict: VersionTable) -> list[str]:
    """Nodes as columns; to the right of a row what is wrong with it and the one line that fixes it."""
    lines = [["", *verdict.nodes, ""]]
    for key, row in verdict.rows.items():
        lines.append([key.replace("_", " "), *(row[node] or "–" for node in verdict.nodes), _note(verdict, key)])
    return drawn(lines)


def _note(verdict: VersionTable, key: str) -> str:
    odd = [entry for entry in verdict.odd if entry.key == key]
    if not odd:
        return "may differ" if verdict.rules[key].agree == "no" and len(set(verdict.rows[key].values())) > 1 else ""
    nodes = [entry.node for entry in odd]
    names = ",".join(nodes)
    if len(odd) == len(verdict.nodes) > 1 and odd[0].phase:
        return f"✗ all nodes: {odd[0].what} → ./motley bootstrap --phase {odd[0].phase}"
    if not any(entry.is_cause for entry in odd):
        return f"✗ {names} {odd[0].what}"
    told = "; ".join(dict.fromkeys(f"{','.join(e.node for e in odd if e.what == one.what)} {one.what}" for one in odd))
    return f"✗ {told} → {odd[0].fix_on(*nodes)}"


def last_line(verdict: VersionTable) -> str:
    if not verdict.rows and not verdict.off:
        return "no node answered · exit 1"
    if verdict.ok:
        return f"all that must agree agrees on {counted(len(verdict.nodes), 'node')} · exit 0"
    causes = len({entry.cause for entry in verdict.odd})
    rows = len({entry.key for entry in verdict.odd})
    words = f"{counted(causes, 'cause')}, {counted(rows, 'row')}" if rows else "nothing odd seen"
    return f"{words}{f' · {len(verdict.off)} not looked at' if verdict.off else ''} · exit 1"


# -- the verb ------------------------------------------------------------------------------------------------


def read(inventory: Inventory, limit: list[str]) -> tuple[dict[str, Versions], dict[str, str]]:
    """What the nodes say, and why the others say nothing."""
    reader = run_playbook.Reader("versions")
    request = run_playbook.PlaybookRun(
        verb="check-versions", playbook="check-versions", inventory=inventory, limit=",".join(limit)
    )
    key = inventory.state / "controller_ed25519"
    given = os.environ.get("MOTLEY_PASSWORD", "")
    passwords = Passwords("", "") if key.exists() or not given else Passwords(given, given)
    log = run_playbook.read(request, passwords, reader, "versions")
    silent = [name for name in limit or inventory.nodes if name not in reader.reported]
    off = {name: why_silent(reader.nodes.get(name), log) for name in silent}
    return {name: reader.reported[name] for name in inventory.nodes if name in reader.reported}, off


def why_silent(node: NodeProgress | None, log: Path) -> str:
    """Why it said nothing: it is off; or the task that failed there, with what is known of it; or how Ansible ended."""
    if node and node.off:
        return node.off
    phase = node.phases[node.failed] if node and node.failed else None
    if node and phase and (cause := phase.failure):
        fix = f"fix: {cause.fix_on(node.name)}"
        words = [f"{node.failed}: {phase.failed_task}: {cause.what}", cause.output, fix]
    else:
        words = ["it was not reached", *run_playbook.last_words(log)]
    return "\n    ".join([*filter(None, words), f"Ansible's log: {run_playbook.short_path(log)}"])


def check(inventory: Inventory, limit: list[str], *, as_json: bool, fix: bool) -> int:
    verdict = judge(*read(inventory, limit))
    if fix and (phases := sorted({odd.phase for odd in verdict.odd if odd.phase})):
        nodes = ",".join(dict.fromkeys(odd.node for odd in verdict.odd if odd.phase))
        if not as_json:
            print("\n".join(table(verdict)))
        request = run_playbook.PlaybookRun(
            verb="fix-versions",
            playbook="bootstrap",
            inventory=inventory,
            phase=",".join(phases),
            limit=nodes,
            typed="./motley check-versions --fix",
        )
        passwords = ask_passwords(inventory)
        with interrupt.changing(), redirect_stdout(sys.stderr if as_json else sys.stdout):
            if code := run_playbook.run(request, passwords):
                return code
            verdict = judge(*read(inventory, limit))
    if as_json:
        json.dump(as_data(verdict), sys.stdout, indent=1, ensure_ascii=False)
        print()
    else:
        if verdict.rows:
            print("\n".join(table(verdict)))
        for name, why in verdict.off.items():
            print(f"  {name} was not looked at: {why}")
        print(last_line(verdict))
    return 0 if verdict.ok else 1
