"""What stands in a launch's way, each with its mend, all at once."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from typing import Any

from train.plan import version_rules
from train.plan.nodes import Node, gb

KEPT_FREE_BYTES = 2_000_000_000
"""What checkpoints, rows and logs of a run may take beside the model."""


def unequal(told: dict[str, dict[str, str | None]]) -> list[str]:
    """Versions that must agree and do not. Code, models and data are not among them: a launch brings them."""
    verdict = version_rules.judge(told)
    odd = [entry for entry in verdict.odd if entry.key.partition(" ")[0] not in ("train", "model", "data")]
    causes = [entry for entry in odd if entry.cause == entry.key]
    findings = []
    for key, same in itertools.groupby(causes, key=lambda entry: entry.key):
        entries = list(same)
        where = ",".join(entry.node for entry in entries)
        has = entries[0].value or "none"
        usual = f", the others {entries[0].expected}" if len(entries) < len(told) and entries[0].expected else ""
        fix = re.sub(rf"(?<![\w-]){re.escape(entries[0].node)}(?![\w-])", where, entries[0].fix)
        fix = fix if len(entries) < len(told) else fix.replace(f" LIMIT={where}", "")
        what = f"{where}: {entries[0].what}" if entries[0].value is None else f"{where}: {key} is {has}{usual}"
        findings.append(f"{what}\nfix: {fix}   (make check-versions shows all)")
    return findings


def closed(nodes: list[Node]) -> list[str]:
    """One finding for each node that others do not reach; who reaches nobody is to blame himself."""
    apart = {node.name: set(node.look["missed"]) for node in nodes}
    cut_off = {name for name, missed in apart.items() if len(nodes) > 2 and len(missed) == len(nodes) - 1}
    findings = []
    for node in nodes:
        callers = [name for name, missed in apart.items() if node.name in missed and name not in cut_off - {node.name}]
        if node.name in cut_off or callers:
            what = f"it does not answer {', '.join(callers)}" if callers else "it reaches no other node"
            fix = f"make bootstrap PHASE=firewall LIMIT={node.name}; a rule of your own: sudo nft list ruleset on it"
            findings.append(
                f"{node.name}: {what} on the ports of runs: a firewall there, or a router that isolates Wi-Fi clients\n"
                f"fix: {fix}; or leave it out: -e nodes={others(nodes, node)}"
            )
    return findings


def in_the_way(nodes: list[Node], free_needed: Mapping[str, int]) -> list[str]:
    findings = [
        f"{node.name}: {node.look['way']['why']}\n"
        f"fix: make bootstrap PHASE=static_ip LIMIT={node.name}, or leave it out: -e nodes={others(nodes, node)}"
        for node in nodes
        if node.look["way"]["why"]
    ]
    findings += [
        f"{node.name}: port {taken} is taken there, by another program or by a run that lost its files\n"
        f"fix: make stop; if it is another program (sudo ss -ltnp 'sport = :{taken}'): end it, or "
        f"-e motley_render_presence_port={taken + 1}"
        for node in nodes
        if (taken := node.look["port_taken"])
    ]
    findings += closed(nodes)
    for node in nodes:
        needed = free_needed[node.name] + KEPT_FREE_BYTES
        if node.look["free_bytes"] < needed:
            findings.append(
                f"{node.name}: {gb(node.look['free_bytes'])} are free, {gb(needed)} are needed "
                f"(the base model, and {gb(KEPT_FREE_BYTES)} for checkpoints)\n"
                f"fix: make room on it (sudo du -xhd1 / | sort -h), or leave it out: -e nodes={others(nodes, node)}"
            )
    return findings


def does_not_fit(nodes: list[Node], memory: dict[str, Any]) -> list[str]:
    """Each node that lacks memory with its numbers; the mildest setting that helps, or the nodes that would do."""
    small = [entry for entry in memory["nodes"] if not entry["fits"]]
    findings = []
    for entry in small:
        needs = f"{gb(entry['needs_bytes'])} are needed, it has {gb(entry['has_bytes'])} (92 % of it is counted on)"
        findings.append(f"{entry['name']} has too little memory for {memory['model']}: {needs}")
    if findings:
        fitting = [node.name for node in nodes if node.name not in {entry["name"] for entry in small}]
        ways = [f"-e nodes={','.join(fitting)}"] if fitting else []
        fixes = [entry["fix"] for entry in small]
        if all(fixes):
            together = {name: value for fix in fixes for name, value in fix.items()}
            ways.insert(0, " ".join(f"-e {name}={str(value).lower()}" for name, value in together.items()))
        findings.append(f"fix: {', or '.join(ways) or 'choose a smaller model; no setting makes it fit here'}")
    return ["\n".join(findings)] if findings else []


def others(nodes: list[Node], left_out: Node) -> str:
    return ",".join(node.name for node in nodes if node is not left_out) or "OTHERS"
