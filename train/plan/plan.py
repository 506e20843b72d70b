"""The plan itself: all that the later steps need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from train.plan.nodes import Node
from train.plan.runs import Run
from train.plan.speed import Speeds


@dataclass(kw_only=True, slots=True)
class Plan:
    run: Run
    nodes: list[Node]
    settings: dict[str, Any]
    """Every setting of the run, as it will be."""
    model: dict[str, Any]
    dataset: dict[str, Any]
    memory: dict[str, Any]
    link_mbit: float
    link_why: str = ""
    help: dict[str, str] = field(default_factory=dict)
    """Of each setting."""
    model_bytes: int = 0
    shape: str = ""
    """What `python -m train plan` knows the model's shape by."""
    here: dict[str, bool] = field(default_factory=dict)
    """Which nodes have the model already."""
    speeds: Speeds = field(default_factory=Speeds)
    outlook: dict[str, Any] = field(default_factory=dict)
    """What `python -m train plan --speeds` foretells; empty until every node's speed is known."""
    warnings: list[str] = field(default_factory=list)

    @property
    def sync_s(self) -> float:
        wire = self.settings.get("wire", "auto")
        seconds: dict[str, float] = self.memory["wire_seconds_per_step"]
        if wire in seconds:
            return seconds[wire]
        return seconds["fp32"] if seconds["fp32"] <= 0.5 else seconds["bf16"]  # as train/parallel/sync.py chooses


def foretold(plan: Plan) -> dict[str, Any]:
    """Kept with the run, so that its report can hold it against what came. Empty until speeds are known."""
    if not plan.outlook:
        return {}
    together, rows = plan.outlook["together"], plan.settings["rows_per_step"]
    if plan.settings["balance"] == "even":
        even = {node.name: round(rows / len(plan.nodes), 1) for node in plan.nodes}
        return {"step_s": together["step_s"] * plan.outlook["over_even_split"], "shares": even}
    return {"step_s": together["step_s"], "shares": together["shares"]}


def who_has(key: str, told: Mapping[str, Mapping[str, str | None]]) -> dict[str, bool]:
    """Which nodes have a model or rows, whole and alike: by the hashes that the relay left there."""
    values = [facts.get(key) for facts in told.values()]
    usual = next((value for value in values if value and " " not in value), None)
    return {name: usual is not None and facts.get(key) == usual for name, facts in told.items()}


def raw_folder(plan: Plan) -> str:
    """Where the head keeps a data set that was brought to it, as it came; empty where it makes the data itself."""
    if plan.dataset["embedded"]:
        return ""
    return f"{plan.nodes[0].look['home']}/data/raw/{plan.dataset['local_name']}"


def prepare_words(plan: Plan) -> list[str]:
    """How the head makes rows of the data: `python -m train` …"""
    settings, raw, file = plan.settings, raw_folder(plan), plan.dataset["file"]
    source = f"{raw}/{file.rpartition('/')[2]}" if file else raw or plan.dataset["name"]
    model = f"{plan.nodes[0].look['home']}/models/base/{plan.model['folder_name']}"
    words = ["prepare", "--json", f"--dataset={source}", f"--model={model}"]
    names = ("max_seq_length", "train_on", "eval_fraction", "max_bad")
    words += [f"--{name.replace('_', '-')}={settings[name]}" for name in names]
    return words if settings["pack"] else [*words, "--no-pack"]


def as_data(plan: Plan) -> dict[str, Any]:
    """For the steps that follow, and for `make plan JSON=1`."""
    return {
        "run": plan.run.name,
        "step": plan.run.step,
        "anew": plan.run.anew,
        "settings": plan.settings,
        "help": plan.help,
        "given": {name: plan.settings[name] for name in plan.run.values},
        "foretold": foretold(plan),
        "model": plan.model,
        "dataset": plan.dataset,
        "memory": plan.memory,
        "lack_model": [name for name, here in plan.here.items() if not here],
        "raw": raw_folder(plan),
        "prepare": prepare_words(plan),
        "link_mbit": plan.link_mbit,
        "speeds": plan.speeds.rows_per_s,
        "warnings": plan.warnings,
        "nodes": [
            {key: value for key, value in asdict(node).items() if key != "look"}
            | {"card": node.look["way"].get("card"), "home": node.look["home"], "cores": node.look["cores"]}
            for node in plan.nodes
        ],
    }
