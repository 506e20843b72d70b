"""What blocks a launch, each with its fix, all at once."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from train.plan.machines import odd_versions
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import PlanNode, gb
from train.plan.machines.odd_versions import Versions
from train.plan.model.memory import gib
from train.plan.placement.fit import Fit
from train.plan.placement.hold_or_stream import lacks
from train.plan.values import Settings

KEPT_FREE_BYTES = 2_000_000_000
"""What checkpoints, rows and logs of a run may take beside the model."""


def running(nodes: Mapping[str, NodeFacts], otherwise: str = "let it begin after that one: --queue") -> list[str]:
    where: dict[str, list[str]] = {}
    for name, node in nodes.items():
        if node.run_on:
            where.setdefault(node.run_on, []).append(name)
    runs = "; ".join(f"'{run}' is running on {', '.join(names)}" for run, names in where.items())
    if runs:
        return [f"{runs}\nfix: ./motley stop, or {otherwise}"]
    waiting = ", ".join(dict.fromkeys(run for node in nodes.values() for run in node.waiting))
    return [f"the queue has {waiting}\nfix: ./motley stop --all, or {otherwise}"] if waiting else []


def no_place_in_queue(run: str, nodes: Mapping[str, NodeFacts], old_code: Sequence[str]) -> list[str]:
    """Why a run cannot be put into the queue. `old_code`: the nodes whose training package is another one."""
    is_on = [name for name, node in nodes.items() if run in (node.run_on, *node.waiting)]
    if is_on:
        return [f"'{run}' is running or waits already on {', '.join(is_on)}\nfix: another name: --run NAME"]
    busy = sorted({run for node in nodes.values() for run in (node.run_on, *node.waiting) if run})
    if not busy or not old_code:
        return []
    what = f"{', '.join(old_code)}: the training package there is another one than here, and {', '.join(busy)} needs it"
    return [f"{what}\nfix: wait until the queue is empty (./motley queue), or ./motley stop --all"]


def unequal(versions: Mapping[str, Versions]) -> list[str]:
    """Versions that must agree and do not. Code, models and data are not among them: a launch brings them."""
    verdict = odd_versions.judge(versions)
    odd = [entry for entry in verdict.odd if entry.key.partition(" ")[0] not in ("train", "model", "data")]
    causes = [entry for entry in odd if entry.is_cause]
    findings = []
    for _, same in itertools.groupby(causes, key=lambda entry: entry.key):
        entries = list(same)
        nodes = [entry.node for entry in entries]
        where, fix = ",".join(nodes), entries[0].fix_on(*nodes)
        fix = fix if len(entries) < len(versions) else fix.replace(f" --nodes {where}", "")
        findings.append(f"{where}: {entries[0].words}\nfix: {fix}   (./motley check-versions shows all)")
    return findings


def closed(nodes: list[PlanNode]) -> list[str]:
    """One finding for each node that others do not reach; who reaches nobody is to blame himself."""
    apart = {node.name: set(node.facts.missed) for node in nodes}
    cut_off = {name for name, missed in apart.items() if len(nodes) > 2 and len(missed) == len(nodes) - 1}
    findings = []
    for node in nodes:
        callers = [name for name, missed in apart.items() if node.name in missed and name not in cut_off - {node.name}]
        if node.name in cut_off or callers:
            what = f"it does not answer {', '.join(callers)}" if callers else "it reaches no other node"
            fix = f"./motley bootstrap --phase firewall --nodes {node.name}; your own rules: sudo nft list ruleset"
            findings.append(
                f"{node.name}: {what} on the ports of runs: a firewall there, or a router that isolates Wi-Fi clients\n"
                f"fix: {fix}; or leave it out: --nodes {others(nodes, node)}"
            )
    return findings


def blocking(
    nodes: list[PlanNode], bytes_to_come: Mapping[str, int] | None = None, kept_bytes: int = KEPT_FREE_BYTES
) -> list[str]:
    """`bytes_to_come`: what a node will be sent; `kept_bytes`: what checkpoints, rows and logs take beside."""
    findings = [
        f"{node.name}: {node.facts.route.why}\n"
        f"fix: ./motley bootstrap --phase static_ip --nodes {node.name}, or leave it out: "
        f"--nodes {others(nodes, node)}"
        for node in nodes
        if node.facts.route.why
    ]
    findings += [
        f"{node.name}: port {taken} is taken there, by another program or by a run that lost its files\n"
        f"fix: ./motley stop; if it is another program (sudo ss -ltnp 'sport = :{taken}'): end it, or "
        f"--set motley_render_presence_port={taken + 1}"
        for node in nodes
        if (taken := node.facts.port_taken)
    ]
    findings += closed(nodes)
    for node in nodes:
        to_come = (bytes_to_come or {}).get(node.name, 0)
        needed = to_come + kept_bytes
        if node.facts.free_bytes < needed:
            findings.append(
                f"{node.name}: {gb(node.facts.free_bytes)} are free, {gb(needed)} are needed "
                f"({'the base model, and ' if to_come else ''}{gb(kept_bytes)} for checkpoints)\n"
                f"fix: make room on it (sudo du -xhd1 / | sort -h), or leave it out: --nodes {others(nodes, node)}"
            )
    return findings


def larger_card_idle(nodes: list[PlanNode]) -> list[str]:
    """Larger cards that are idle: where fewer processes are set than cards, the first on the bus compute."""
    findings = []
    for node in nodes:
        larger = [card for card in node.facts.cards[node.device.processes :] if card.bytes > node.device.memory_bytes]
        if node.device.is_gpu and larger:
            smallest = min(node.cards, key=lambda card: card.bytes)
            findings.append(
                f"{node.name} trains on its {smallest.short_name}, the first on the bus, while its "
                f"{larger[0].short_name} has more memory: let them change slots"
            )
    return findings


def does_not_fit(nodes: list[PlanNode], fit: Fit) -> list[str]:
    """Each node that lacks memory with its numbers; the mildest setting that helps, or the nodes that would do."""
    small = [entry for entry in fit.nodes if not entry.fits]
    if not small:
        return []
    lines = [
        f"{entry.device.name} has too little memory for {fit.model}: {gib(entry.memory.total)} are needed, "
        f"it has {gib(entry.device.memory_bytes)} (92 % of it is counted on){lacks(entry.place)}"
        for entry in small
    ]
    if fit.lacking:
        lines.append(fit.lacking)
    fitting = [node.name for node in nodes if node.name not in {entry.device.name for entry in small}]
    options = [f"--nodes {','.join(fitting)}"] if fitting else []
    if all(entry.fix for entry in small):
        together: Settings = {}
        for name, value in (pair for entry in small for pair in (entry.fix or {}).items()):
            together[name] = min(value, together.get(name, value))  # the least of each is enough for all
        options.insert(0, " ".join(f"--set {name}={str(value).lower()}" for name, value in together.items()))
    fix = ", or ".join(options) or "choose a smaller model; no setting makes it fit here"
    return ["\n".join([*lines, f"fix: {fix}"])]


def others(nodes: list[PlanNode], without: PlanNode) -> str:
    return ",".join(node.name for node in nodes if node is not without) or "OTHERS"
