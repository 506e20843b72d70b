"""What a launch finds and decides, and its plan as it is handed on, for tests of what is made of it."""

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from console import render
from console.electricity import Values, of_plan
from console.infra.slurm.files import SlurmPlan, SweptRun
from train.plan.launch import plan_for_playbook
from train.plan.launch.decide import Decided, decide
from train.plan.launch.launch_plan import LaunchPlan, RunElectricity, TrainingNode
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts
from train.plan.model.sources import BaseModel, DataSource
from train.plan.settings import request
from train.runlog.secret import Secret

USUAL: dict[str, Any] = {
    **{
        "run": "qa",
        "step": 0,
        "begun_again": 0,
        "older_on": [],
        "given": {},
        "predicted": None,
        "memory": {},
        "pipe": None,
    },
    **{"lack_model": [], "old_code": [], "raw": "", "calibrate": [], "tokenizer": None, "recipe": None, "sizes": []},
    **{"link_mbit": 1000.0, "speeds": {}, "warnings": [], "prepare": ["prepare", "--json", "--dataset=stdlib-qa"]},
    "adapter": None,
    "extra_environments": [],
    "template": None,
    "raw_parts": [],
    "electricity": RunElectricity(idle_watts={}, gpu_watts={}),
    "model": BaseModel(name="tiny", source="catalogue", reason="", folder_name="tiny"),
    "dataset": DataSource(name="stdlib-qa", listed=True),
}


GB = 1 << 30
VERSIONS: dict[str, str | None] = {"python": "3.11.2", "environment": "abc123", "torch": "2.13.0", "train": "1"}
ON_GPUS = VERSIONS | {"cuda": "13.0", "unsloth": "1"}


def look(**more: Any) -> dict[str, Any]:
    """What a launch sees on a node."""
    usual = {
        "home": "/home/user/ai-cluster",
        "cores": 8,
        "memory_bytes": 32 * GB,
        "cards": [],
        "free_bytes": 100 * GB,
        "route": {"why": "", "nic": "enp3s0", "mbit": 1000, "wireless": False},
        "run_on": "",
        "port_taken": 0,
        "missed": [],
        "runs": {},
        "measured": [],
    }
    return usual | more


def card(name: str, gigabytes: int) -> dict[str, Any]:
    return {"name": f"NVIDIA GeForce {name}", "bytes": gigabytes * GB, "used": 0}


def gpu(name: str, gigabytes: int, capability: str = "8.9") -> dict[str, Any]:
    """A node with one card."""
    return look(cards=[card(name, gigabytes) | {"capability": capability}])


def node_facts(names: Iterable[str], looks: Iterable[Mapping[str, Any]]) -> dict[str, NodeFacts]:
    return {name: NodeFacts.from_json(look) for name, look in zip(names, looks, strict=True)}


def no_files(model: BaseModel) -> tuple[Mapping[str, Any], int]:
    raise AssertionError(f"nothing is to be fetched for {model.name}")


def launch_facts(
    looks: Sequence[Mapping[str, Any]],
    versions: dict[str, str | None],
    names: Sequence[str] = string.ascii_lowercase,
    **more: Any,
) -> LaunchFacts:
    """What a launch finds of nodes a, b, …, which have the same versions."""
    names = names[: len(looks)]
    usual: dict[str, Any] = {"code": "1", "files": no_files}
    return LaunchFacts(
        addresses={name: f"10.0.0.{place}" for place, name in enumerate(names, 1)},
        nodes=node_facts(names, looks),
        versions=dict.fromkeys(names, versions),
        **usual | more,
    )


def decided(
    values: dict[str, Any], *looks: dict[str, Any], versions: dict[str, str | None] = VERSIONS, **more: Any
) -> Decided:
    return decide(request.read(values, Path("/nowhere")), launch_facts(looks, versions, **more))


def ran(found: Decided, **more: Any) -> dict[str, Any]:
    """A node on which that was launched."""
    launched = json.loads(render.launched(handed_on(found), "now").content)
    return look(runs={found.run: {"launched": launched, "step": 12, "done": False}}, **more)


def node(name: str, **changes: Any) -> TrainingNode:
    usual: dict[str, Any] = {"address": "10.0.0.1", "home": "/h", "interface": "lo", "cores": 1, "processes": 1}
    usual |= {"device": "cpu", "bytes": 1 << 30, "weights": "gpu", "calibrate": []}
    return TrainingNode(name=name, **usual | changes)


def launch_plan(settings: dict[str, Any], **changes: Any) -> LaunchPlan:
    words = dict.fromkeys([*settings, "home"], "what it means")
    usual = {"settings": settings, "help": words, "nodes": [node("a")]}
    return LaunchPlan(**USUAL | usual | changes)


def slurm_plan(settings: dict[str, Any], *, home: str, sweep: Sequence[SweptRun] = (), **changes: Any) -> SlurmPlan:
    common = launch_plan(settings, run=settings["run"], **changes)
    own: dict[str, Any] = {"lack_environment": False, "environment_sets": []}
    runs = [one.run for one in sweep] or [common.run]
    return SlurmPlan.of(common, head="me", home=home, sweep=sweep, runs=runs, **own)


def handed_on(found: Decided, rows: str = "rows", prices: Values | None = None) -> LaunchPlan:
    """As it comes back from Ansible, once the rows are made."""
    data = plan_for_playbook.launch_plan(found, of_plan(found, prices or {})).to_json()
    data["dataset"] |= {"folder_name": rows}
    return LaunchPlan.from_json(data)


def files_of(found: LaunchPlan, node: str, more: dict[str, str] | None = None) -> dict[str, str]:
    ports = {"presence_port": 29400, "group_ports": [29410, 29489]}
    return {
        file.path: file.content for file in render.files(found, node, Secret(token="5f"), ports, more or {}, time="now")
    }
