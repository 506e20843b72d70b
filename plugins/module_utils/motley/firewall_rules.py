"""Rules of a node's firewall that keep callers from TCP ports, as nft lists them. Pure."""

from __future__ import annotations

import re
from typing import Any

OWN = "table inet motley"
COUNTER = re.compile(r"counter packets \d+ bytes \d+ ?")
PORTS = re.compile(r"\b(?:tcp|th) dport (\{[^}]*\}|[\d-]+)")
VERDICT = re.compile(r"\b(?:drop|reject)\b")


def denying(listing: str) -> list[dict[str, Any]]:
    """`nft list ruleset` → {chain, rule, ports}; ports are [first, last] pairs, and none where all are meant: a chain
    that drops whatever no rule lets in."""
    found, table, chain = [], "", ""
    for line in map(str.strip, listing.splitlines()):
        if line.startswith("table "):
            table = line.removesuffix(" {")
        elif line.startswith("chain "):
            chain = f"{table.removeprefix('table ')} {line.removeprefix('chain ').removesuffix(' {')}"
        elif table != OWN and VERDICT.search(line):
            found += rule_of(chain, COUNTER.sub("", line))
    return found


def rule_of(chain: str, rule: str) -> list[dict[str, Any]]:
    if ports := PORTS.search(rule):
        pairs = [word.partition("-") for word in re.findall(r"\d+(?:-\d+)?", ports[1])]
        return [{"chain": chain, "rule": rule, "ports": [[int(low), int(high or low)] for low, _, high in pairs]}]
    if re.search(r"hook (?:input|output) .*policy drop", rule):
        return [{"chain": chain, "rule": "policy drop", "ports": []}]
    return []
