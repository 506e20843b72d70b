"""How a training script of your own runs over the cluster by plain torchrun: each node's line, or what blocks it.

    torchrun --nnodes=3 --node-rank=1 --nproc-per-node=2 --local-addr=… --master-addr=… --master-port=29400 train.py

One static group: nodes in the inventory's order, the first one hosts the store. torchrun restarts nothing: in a static
group its --max-restarts left the other machines hanging.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from train.errors import BadInput
from train.files import SizeAndHash
from train.layout import HEARTBEAT_PORT
from train.plan.launch import what_blocks_a_launch
from train.plan.launch.launch_plan import NodePlan
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts, PlanNode, nodes_of
from train.plan.run_name import as_name

FOLDER = "scripts/torchrun"
"""Below a node's home; in it a folder for each run."""
NOT_GIVEN = "shares by speed, exact resume, survival of a lost machine, the report"


@dataclass(frozen=True, kw_only=True, slots=True)
class Script:
    """What a person typed."""

    name: str
    """The name of the file, below its folder; or of a module that the nodes have."""
    arguments: list[str] = field(default_factory=list)
    is_module: bool = False
    folder: str = ""
    """The file's folder on the controller; all of it is brought to the nodes."""
    files: dict[str, SizeAndHash] = field(default_factory=dict)
    """Name below the folder → size and sha256."""
    run: str = ""

    @property
    def typed(self) -> str:
        return " ".join([self.name, *self.arguments])


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchrunNode(NodePlan):
    computes_on: str
    words: list[str]
    """Its line, behind `torchrun`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchrunPlan:
    run: str
    script: str
    source: str
    """The folder on the controller."""
    files: dict[str, SizeAndHash]
    folder: str
    """The folder below each node's home; empty for a module that the nodes have."""
    old_code: list[str]
    warnings: list[str]
    nodes: list[TorchrunNode]

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> TorchrunPlan:
        plain = json.loads(json.dumps(data))
        return cls(**plain | {"nodes": [TorchrunNode(**node) for node in plain["nodes"]]})


def decide(script: Script, facts: LaunchFacts, port: int = HEARTBEAT_PORT) -> TorchrunPlan:
    """Decides what each node runs; BadInput names everything that blocks it."""
    nodes = nodes_of(facts)
    busy = what_blocks_a_launch.running(facts.nodes, otherwise="wait for its end")
    findings = busy or what_blocks_a_launch.unequal(facts.versions) + what_blocks_a_launch.blocking(nodes)
    if findings:
        raise BadInput("\n".join(findings))
    run = chosen_run(script, facts.nodes)
    return TorchrunPlan(
        run=run,
        script=script.typed,
        source=script.folder,
        files=script.files,
        folder=f"{FOLDER}/{run}" if script.files else "",
        old_code=[name for name, versions in facts.versions.items() if versions["train"] != facts.code],
        warnings=[f"{why}; it is skipped" for why in facts.off.values()],
        nodes=[
            TorchrunNode(
                name=node.name,
                address=node.address,
                home=node.facts.home,
                interface=node.facts.route.nic,
                cores=node.facts.cores,
                processes=node.device.processes,
                computes_on=node.computes_on,
                words=torchrun_words(script, nodes, node, port),
            )
            for node in nodes
        ],
    )


def torchrun_words(script: Script, nodes: list[PlanNode], node: PlanNode, port: int) -> list[str]:
    options: dict[str, object] = {
        "nnodes": len(nodes),
        "node-rank": nodes.index(node),
        "nproc-per-node": node.device.processes,
        "local-addr": node.address,
        "master-addr": nodes[0].address,
        "master-port": port,
    }
    if node.device.processes > 1:  # each line whole, behind its rank; otherwise two processes write into one
        options |= {"tee": 3, "log-dir": f"{node.facts.home}/.cache/torchrun"}
    line = [f"--{name}={value}" for name, value in options.items()]
    return [*line, *(["--module"] if script.is_module else []), script.name, *script.arguments]


def chosen_run(script: Script, nodes: Mapping[str, NodeFacts]) -> str:
    """The name that was given, also again: its folder and what the script left there stay. Else a new one."""
    launched: dict[str, Mapping[str, Any]] = {}
    for node in nodes.values():
        for name, run in node.runs.items():
            launched[name] = launched.get(name) or run.launched
    if launched.get(script.run):
        raise BadInput(f"run: '{script.run}' is a run of launch", fix="fix: another name: --run NAME")
    if script.run:
        return script.run
    stem = as_name(script.name.rpartition("/")[2].removesuffix(".py"))
    names = itertools.chain([stem], (f"{stem}-{count}" for count in itertools.count(2)))
    return next(name for name in names if name not in launched)
