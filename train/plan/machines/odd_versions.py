"""Which node is odd, of those whose versions must agree. What is compared and how: versions_that_must_agree.yml."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

RULES = Path(__file__).with_name("versions_that_must_agree.yml")
Versions = dict[str, str | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionRule:
    key: str
    agree: str = "all"
    or_none: bool = False
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
    missing: bool
    """Whether what each node needs is not there; `what` then says it alone."""
    fix_for: str
    """Its fix, with {host} where a node's name stands."""
    phase: str

    @property
    def is_cause(self) -> bool:
        return self.cause == self.key

    @property
    def words(self) -> str:
        return self.what if self.missing else f"{self.key.replace('_', ' ')} {self.what}"

    def fix_on(self, *nodes: str) -> str:
        return self.fix_for.replace("{host}", ",".join(nodes or [self.node]))


@dataclass(kw_only=True, slots=True)
class VersionTable:
    nodes: list[str]
    rows: dict[str, Versions] = field(default_factory=dict)
    """Key → node → version."""
    rules: dict[str, VersionRule] = field(default_factory=dict)
    odd: list[Odd] = field(default_factory=list)
    off: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return not self.odd and not self.off and bool(self.rows)


def _rule(entry: dict[str, Any]) -> VersionRule:
    return VersionRule(**{name: value for name, value in entry.items() if name != "package"})  # a playbook's


def judge(versions: Mapping[str, Versions], off: dict[str, str] | None = None) -> VersionTable:
    """Which of these nodes are odd. `versions`: node → its versions, in the cluster's order."""
    verdict = VersionTable(nodes=list(versions), off=dict(off or {}))
    written = yaml.safe_load(RULES.read_text())
    fixed, kinds = ([_rule(entry) for entry in written[part]] for part in ("rows", "found"))
    fixed_keys = {rule.key for rule in fixed}
    others = dict.fromkeys(key for facts in versions.values() for key in facts if key not in fixed_keys)
    of_kinds = [(key, rule) for key in others for rule in kinds if key.startswith(rule.key + " ")]
    for key, rule in [*((rule.key, rule) for rule in fixed), *of_kinds]:
        row = {node: facts.get(key) for node, facts in versions.items()}
        if any(row.values()) or rule.needed:
            verdict.rows[key], verdict.rules[key] = row, rule
            verdict.odd += _odd_ones(key, rule, row, versions, verdict.odd)
    return verdict


def _odd_ones(
    key: str, rule: VersionRule, row: Versions, versions: Mapping[str, Versions], before: list[Odd]
) -> list[Odd]:
    usual = _usual(row, rule, versions)
    causes = {(odd.node, odd.key): odd.cause for odd in before}
    odd_ones = []
    for node, value in row.items():
        expected = versions[node].get(rule.equals) if rule.equals else usual
        if _fits(value, expected, rule, key):
            continue
        cause = causes.get((node, rule.follows), key)
        if missing := value is None and bool(rule.needed):
            what = rule.needed
        elif changed(key, value):
            what = "is not as it was installed"
        elif rule.equals:
            what = f"is {value}, not {rule.equals.replace('_', ' ')}'s {expected}"
        elif cause != key:
            what = f"follows {rule.follows}"
        else:
            what = f"is {value or 'none'}" + (f", the others {expected}" if value != expected else "")
        fix = rule.fix or f"./motley bootstrap --phase {rule.phase} --nodes {{host}}"
        fix = fix.replace("{name}", key.partition(" ")[2])
        odd = Odd(
            node=node, key=key, value=value, expected=expected, cause=cause, what=what, missing=missing, fix_for=fix,
            phase=rule.phase,
        )  # fmt: skip
        odd_ones.append(odd)
    return odd_ones


def _fits(value: str | None, expected: str | None, rule: VersionRule, key: str) -> bool:
    if rule.equals:  # nothing to compare where one of both is not there
        return value is None or expected is None or value == expected
    if rule.agree == "no":
        return True
    if value is None:
        return (rule.or_none or expected is None) and not rule.needed
    if key == "environment" and not value.isalnum():
        return False  # it was changed, or is not ours: wrong, even when it is so on all nodes
    return _part(value, rule) == _part(expected, rule)


def changed(key: str, value: str | None) -> str:
    """What of an environment is no longer as it was installed, such as "changed: numpy (numpy/version.py)"."""
    return (value or "").partition(", ")[2] if key == "environment" else ""


def _part(value: str | None, rule: VersionRule) -> str | None:
    count = {"minor": 2, "major": 1}.get(rule.agree)
    return ".".join(value.split(".")[:count]) if value and count else value


def _usual(row: Versions, rule: VersionRule, versions: Mapping[str, Versions]) -> str | None:
    """What most nodes have; of equals, what a node with an untouched environment has, then what the head has."""
    counts = Counter(_part(value, rule) for value in row.values() if value)
    if not counts:
        return None
    if "not loaded" in counts:
        counts["not loaded"] = 0  # a card without its driver is no example for others, however many there are
    most = max(counts.values())
    best = [node for node, value in row.items() if value and counts[_part(value, rule)] == most]
    return row[min(best, key=lambda node: not str(versions[node].get("environment") or "-").isalnum())]
