"""Rules of a node's firewall that keep callers from TCP ports, as nft lists them. Pure."""

from __future__ import annotations

import re
from typing import TypedDict

OWN = "table inet motley"
COUNTER = re.compile(r"counter packets \d+ bytes \d+ ?")
PORTS = re.compile(r"\b(?:tcp|th) dport (\{[^}]*\}|[\d-]+)")
VERDICT = re.compile(r"\b(?:drop|reject)\b")
HOOK = re.compile(r"type filter hook (\w+)")


class Rule(TypedDict):
    chain: str
    hook: str
    rule: str
    ports: list[list[int]]


def denying(listing: str) -> list[Rule]:
    """`nft list ruleset` → {chain, hook, rule, ports}; ports are [first, last] pairs, and none where all are meant: a
    chain that drops whatever no rule lets in, by its policy or, as firewalld's, by a rule for all that gets there."""
    rules: list[Rule] = []
    table, chain, hook = "", "", ""
    for line in map(str.strip, listing.splitlines()):
        if line.startswith("table "):
            table = line.removesuffix(" {")
        elif line.startswith("chain "):
            chain, hook = f"{table.removeprefix('table ')} {line.removeprefix('chain ').removesuffix(' {')}", ""
        elif table != OWN:
            hook = hooked[1] if (hooked := HOOK.match(line)) else hook
            if VERDICT.search(line):
                rules += rule_of(chain, hook, COUNTER.sub("", line))
    return rules


def rule_of(chain: str, hook: str, rule: str) -> list[Rule]:
    """`hook` is empty in a chain that others lead to."""
    if ports := PORTS.search(rule):
        pairs = [word.partition("-") for word in re.findall(r"\d+(?:-\d+)?", ports[1])]
        spans = [[int(low), int(high or low)] for low, _, high in pairs]
        return [{"chain": chain, "hook": hook, "rule": rule, "ports": spans}]
    if hook in ("input", "output"):
        if "policy drop" in rule:
            return [{"chain": chain, "hook": hook, "rule": "policy drop", "ports": []}]
        if VERDICT.match(rule):
            return [{"chain": chain, "hook": hook, "rule": rule, "ports": []}]
    return []
