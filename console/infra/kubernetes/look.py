"""What a plan has to know of pods that are not there yet: what each of them is to get."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from console import hub
from console.infra import Facts
from console.infra.kubernetes.objects import HOME, nodes_of
from console.infra.kubernetes.settings import Settings, amount
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts
from train.versions import package_hash

UNKNOWN = math.inf
"""Free room of a volume: nobody has looked."""
MADE_WITH = {"cuda": "13.0", "unsloth": "locked"}
"""What the image of templates/Containerfile has on a card."""


def look(known: Facts, args: Facts) -> Facts:
    """There is nothing to ask: the pods are made for the run."""
    return {"look": {}, "versions": {}}


def facts_of(settings: Settings, run: str, hub_asked: hub.Asked, known: dict[str, Any]) -> LaunchFacts:
    nodes = nodes_of(run or "run", settings.pods)
    code = package_hash(hub.ROOT / "train")
    versions: dict[str, str | None] = {"cuda": None, "unsloth": None, "train": code, "environment": "image"}
    versions |= MADE_WITH if settings.gpus else {}
    return LaunchFacts(
        addresses=nodes,
        launched={run: found["launched"] for run, found in known.items()},
        nodes=dict.fromkeys(nodes, node_facts(settings, known)),
        versions=dict.fromkeys(nodes, versions),
        processes=dict.fromkeys(nodes, 1),
        code=code,
        files=hub_asked.files,
    )


def node_facts(settings: Settings, known: dict[str, Any]) -> NodeFacts:
    """The facts of a pod, as a machine at home says them of itself."""
    facts: Facts = {"cores": max(1, int(amount(settings.cpu) or 1)), "memory_bytes": int(amount(settings.memory) or 0)}
    facts |= {"home": HOME, "free_bytes": UNKNOWN, "runs": known, "route": {"nic": "pod"}}
    return replace(NodeFacts.from_json(facts), cards=[settings.card()] if settings.gpus else [])
