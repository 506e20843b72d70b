"""A plan as a launch hands it on, for tests of what is made of it."""

import string
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from console import render
from console.electricity import Values, of_plan
from console.infra.slurm.files import SlurmPlan, SweptRun
from train.plan.launch import plan_for_playbook
from train.plan.launch.decide import Decided
from train.plan.launch.launch_plan import LaunchPlan, RunElectricity, TrainingNode
from train.plan.machines.facts import NodeFacts
from train.plan.machines.nodes import LaunchFacts
from train.plan.model.sources import BaseModel, DataSource
from train.runlog.secret import Secret

USUAL: dict[str, Any] = {
    **{"run": "qa", "step": 0, "from_start": False, "given": {}, "predicted": None, "memory": {}, "pipe": None},
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


def node_facts(names: Iterable[str], looks: Iterable[Mapping[str, Any]]) -> dict[str, NodeFacts]:
    return {name: NodeFacts.from_json(look) for name, look in zip(names, looks, strict=True)}


def no_files(model: BaseModel) -> tuple[Mapping[str, Any], int]:
    raise AssertionError(f"nothing is to be fetched for {model.name}")


def launch_facts(looks: Sequence[Mapping[str, Any]], versions: dict[str, str | None], **more: Any) -> LaunchFacts:
    """What a launch finds of nodes a, b, …, which have the same versions."""
    names = string.ascii_lowercase[: len(looks)]
    usual: dict[str, Any] = {"code": "1", "files": no_files}
    return LaunchFacts(
        addresses={name: f"10.0.0.{place}" for place, name in enumerate(names, 1)},
        nodes=node_facts(names, looks),
        versions=dict.fromkeys(names, versions),
        **usual | more,
    )


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
