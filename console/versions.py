"""`make check-versions`: one table of what must agree between the nodes and what may differ; odd ones marked.

What is compared and how is data: console/versions.yml. Judging is pure; playbooks/check-versions.yml reads the nodes.
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from console import play
from console.inventory.read import Inventory
from console.progress import Node, Progress
from console.strict_yaml import load

RULES = Path(__file__).with_name("versions.yml")
Versions = dict[str, str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    key: str
    agree: str = "all"
    follows: str = ""
    equals: str = ""
    """Another row that it must be equal to on the same node."""
    phase: str = ""
    fix: str = ""
    needed: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Odd:
    """One node whose version is not what it should be."""

    node: str
    key: str
    value: str | None
    expected: str | None
    cause: str
    """The row that it follows from; itself, if it is a cause."""
    what: str
    fix: str
    phase: str


@dataclass(kw_only=True, slots=True)
class Verdict:
    nodes: list[str]
    rows: dict[str, Versions] = field(default_factory=dict)
    """Key → node → version."""
    rules: dict[str, Rule] = field(default_factory=dict)
    odd: list[Odd] = field(default_factory=list)
    off: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.odd and not self.off and bool(self.rows)


def read_rules(path: Path = RULES) -> tuple[list[Rule], list[Rule]]:
    data = load(path)
    return [_rule(entry) for entry in data["rows"]], [_rule(entry) for entry in data["found"]]


def _rule(entry: dict[str, Any]) -> Rule:
    known = {key: entry[key] for key in ("key", "agree", "follows", "phase", "fix", "needed") if key in entry}
    return Rule(**known, equals=entry.get("with", ""))


def judge(versions: dict[str, Versions], off: dict[str, str] | None = None, path: Path = RULES) -> Verdict:
    """Node → its versions, in the cluster's order."""
    verdict = Verdict(nodes=list(versions), off=dict(off or {}))
    fixed, found = read_rules(path)
    known = {rule.key for rule in fixed}
    others = dict.fromkeys(key for facts in versions.values() for key in facts if key not in known)
    made = [(key, rule) for key in others for rule in found if key.startswith(rule.key + " ")]
    for key, rule in [*((rule.key, rule) for rule in fixed), *made]:
        row = {node: facts.get(key) for node, facts in versions.items()}
        if any(row.values()) or rule.needed:
            verdict.rows[key], verdict.rules[key] = row, rule
            verdict.odd += _odd_ones(key, rule, row, versions, verdict.odd)
    return verdict


def _odd_ones(key: str, rule: Rule, row: Versions, versions: dict[str, Versions], before: list[Odd]) -> list[Odd]:
    usual = _usual(row, rule, versions)
    causes = {(odd.node, odd.key): odd.cause for odd in before}
    found = []
    for node, value in row.items():
        expected = versions[node].get(rule.equals) if rule.equals else usual
        if _fits(value, expected, rule, key):
            continue
        cause = causes.get((node, rule.follows), key)
        if value is None and rule.needed:
            what = rule.needed
        elif changed(key, value):
            what = "is not as it was installed"
        elif rule.equals:
            what = f"is not {rule.equals.replace('_', ' ')}'s {expected or 'none'}"
        elif cause != key:
            what = f"follows {rule.follows}"
        else:
            what = "must agree" if expected else "differs from the others"
        fix = rule.fix or f"make bootstrap PHASE={rule.phase} LIMIT={{host}}"
        fix = fix.replace("{host}", node).replace("{name}", key.partition(" ")[2])
        odd = Odd(node=node, key=key, value=value, expected=expected, cause=cause, what=what, fix=fix, phase=rule.phase)
        found.append(odd)
    return found


def _fits(value: str | None, expected: str | None, rule: Rule, key: str) -> bool:
    if rule.equals:  # nothing to compare where one of both is not there
        return value is None or expected is None or value == expected
    if rule.agree == "no":
        return True
    if value is None:
        return expected is None and not rule.needed
    if key == "environment" and not value.isalnum():
        return False  # it was changed, or is not ours: wrong, even when it is so on all nodes
    return _part(value, rule) == _part(expected, rule)


def changed(key: str, value: str | None) -> str:
    """Of an environment what is no longer as it was installed, such as "changed: numpy (numpy/version.py)"."""
    return (value or "").partition(", ")[2] if key == "environment" else ""


def _part(value: str | None, rule: Rule) -> str | None:
    count = {"minor": 2, "major": 1}.get(rule.agree)
    return ".".join(value.split(".")[:count]) if value and count else value


def _usual(row: Versions, rule: Rule, versions: dict[str, Versions]) -> str | None:
    """What most nodes have; of equals, what a node with an untouched environment has, then what the head has."""
    counts = Counter(_part(value, rule) for value in row.values() if value)
    if not counts:
        return None
    most = max(counts.values())
    best = [node for node, value in row.items() if value and counts[_part(value, rule)] == most]
    return row[min(best, key=lambda node: not str(versions[node].get("environment") or "-").isalnum())]


# -- what a person sees --------------------------------------------------------------------------------------


def as_data(verdict: Verdict) -> dict[str, Any]:
    return {
        "ok": verdict.ok,
        "nodes": verdict.nodes,
        "off": verdict.off,
        "versions": verdict.rows,
        "failures": [asdict(odd) for odd in verdict.odd],
    }


def table(verdict: Verdict) -> list[str]:
    """Nodes as columns; to the right of a row what is wrong with it and the one line that mends it."""
    lines = [["", *verdict.nodes]]
    notes = [""]
    for key, row in verdict.rows.items():
        lines.append([key.replace("_", " "), *(row[node] or "–" for node in verdict.nodes)])
        notes.append(_note(verdict, key))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    drawn = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines]
    return [f"  {line}  {note}".rstrip() for line, note in zip(drawn, notes, strict=True)]


def _note(verdict: Verdict, key: str) -> str:
    odd = [entry for entry in verdict.odd if entry.key == key]
    if not odd:
        return "may differ" if verdict.rules[key].agree == "no" and len(set(verdict.rows[key].values())) > 1 else ""
    names = ",".join(entry.node for entry in odd)
    if len(odd) == len(verdict.nodes) > 1 and odd[0].phase:
        return f"✗ all nodes: {odd[0].what} → make bootstrap PHASE={odd[0].phase}"
    if all(entry.cause != key for entry in odd):
        return f"✗ {names} {odd[0].what}"
    return f"✗ {names} {odd[0].what} → {odd[0].fix.replace(odd[0].node, names)}"


def last_line(verdict: Verdict) -> str:
    if not verdict.rows and not verdict.off:
        return "no node answered · exit 1"
    if verdict.ok:
        return f"all that must agree agrees on {len(verdict.nodes)} nodes · exit 0"
    causes = len({entry.cause for entry in verdict.odd})
    rows = len({entry.key for entry in verdict.odd})
    words = f"{causes} cause{'s' * (causes != 1)}, {rows} row{'s' * (rows != 1)}" if rows else "nothing odd seen"
    return f"{words}{f' · {len(verdict.off)} not looked at' if verdict.off else ''} · exit 1"


# -- the verb ------------------------------------------------------------------------------------------------


class _Reader(Progress):
    """Keeps what the nodes told."""

    __slots__ = ("told",)

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, Versions] = {}

    def take(self, event: dict[str, Any]) -> None:
        super().take(event)
        data = event.get("event_data") or {}
        if event.get("event") == "runner_on_ok" and "versions" in (data.get("res") or {}):
            self.told[data["host"]] = data["res"]["versions"]


def read(inventory: Inventory, limit: str) -> tuple[dict[str, Versions], dict[str, str]]:
    """What the nodes say, and why the others say nothing."""
    reader = _Reader()
    wish = play.Wish(verb="check-versions", playbook="check-versions", inventory=inventory, limit=limit)
    key = inventory.state / "controller_ed25519"
    given = os.environ.get("MOTLEY_PASSWORD", "")
    passwords = play.Passwords("", "") if key.exists() or not given else play.Passwords(given, given)
    log = play.read(wish, passwords, reader, "versions")
    off: dict[str, str] = {}
    for name in limit.split(",") if limit else inventory.nodes:
        node = reader.nodes.get(name)
        if name not in reader.told:
            off[name] = why_silent(node, log)
    return {name: reader.told[name] for name in inventory.nodes if name in reader.told}, off


def why_silent(node: Node | None, log: Path) -> str:
    """Off; or the task that failed there, with what is known of it; or how Ansible ended."""
    if node and node.off:
        return node.off
    phase = node.phases[node.failed] if node and node.failed else None
    if phase and phase.failure:
        cause = phase.failure
        words = [
            f"{node.failed if node else ''}: {phase.failed_task}: {cause.what}",
            cause.output,
            f"fix: {cause.fix_on(node.name if node else '')}",
        ]
    else:
        words = ["it was not reached", *play.last_words(log)]
    return "\n    ".join([*filter(None, words), f"Ansible's words: {play._short(log)}"])


def check(inventory: Inventory, limit: str, *, as_json: bool, fix: bool) -> int:
    verdict = judge(*read(inventory, limit))
    if fix and (phases := sorted({odd.phase for odd in verdict.odd if odd.phase})):
        nodes = ",".join(dict.fromkeys(odd.node for odd in verdict.odd if odd.phase))
        if not as_json:
            print("\n".join(table(verdict)))
        wish = play.Wish(
            verb="fix-versions",
            playbook="bootstrap",
            inventory=inventory,
            phase=",".join(phases),
            limit=nodes,
            typed="make check-versions FIX=yes",
        )
        if code := play.run(wish, play.ask_passwords(inventory)):
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
