"""The plan: what a launch decided, and all that the later steps need."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from train.plan import fit
from train.plan.nodes import Node, Speeds
from train.plan.request import HELP, Request, about_dataset
from train.plan.speedup import wire_for


@dataclass(kw_only=True, slots=True)
class Plan:
    request: Request
    nodes: list[Node]
    settings: dict[str, Any]
    """Every setting of the run, as it will be."""
    model: dict[str, Any]
    model_bytes: int
    lacking: list[str]
    """Nodes that have not the model yet."""
    old_code: list[str]
    """Nodes whose training package is not the one here."""
    fit: fit.Fit
    link_why: str
    speeds: Speeds = field(default_factory=Speeds)
    prediction: dict[str, Any] = field(default_factory=dict)
    """What the nodes do together (fit.predict); empty until every node's speed is known."""
    warnings: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        return self.request.config.run

    @property
    def sync_s(self) -> float:
        seconds = self.fit.seconds
        wire = self.settings["wire"]
        return seconds[wire_for(seconds["fp32"]) if wire == "auto" else wire]


def predicted(plan: Plan) -> dict[str, Any]:
    """Kept with the run, so that its report can hold it against what came. Empty until speeds are known."""
    if not plan.prediction:
        return {}
    together, rows = plan.prediction["together"], plan.settings["rows_per_step"]
    if plan.settings["balance"] == "even":
        even = {node.name: round(rows / len(plan.nodes), 1) for node in plan.nodes}
        return {"step_s": together["step_s"] * plan.prediction["over_even_split"], "shares": even}
    return {"step_s": together["step_s"], "shares": together["shares"]}


def raw_folder(plan: Plan) -> str:
    """Where the head keeps a data set that was brought to it, as it came; empty where it makes the data itself."""
    data = plan.request.dataset
    return "" if data.embedded else f"{plan.nodes[0].look['home']}/data/raw/{data.local_name}"


def prepare_words(plan: Plan) -> list[str]:
    """How the head makes rows of the data: `python -m train` …"""
    settings, raw, data = plan.settings, raw_folder(plan), plan.request.dataset
    source = f"{raw}/{data.file.resolve().name}" if data.file else raw or data.name
    model = f"{plan.nodes[0].look['home']}/models/base/{plan.model['folder_name']}"
    words = ["prepare", "--json", f"--dataset={source}", f"--model={model}"]
    names = ("max_seq_length", "train_on", "eval_fraction", "max_bad")
    words += [f"--{name.replace('_', '-')}={settings[name]}" for name in names]
    return words if settings["pack"] else [*words, "--no-pack"]


def as_data(plan: Plan) -> dict[str, Any]:
    """For the steps that follow, and for `make plan JSON=1`."""
    return {
        "run": plan.run,
        "step": plan.request.step,
        "anew": plan.request.anew,
        "settings": plan.settings,
        "help": HELP,
        "given": {name: plan.settings[name] for name in plan.request.given},
        "foretold": predicted(plan),
        "model": plan.model,
        "dataset": about_dataset(plan.request.dataset),
        "memory": fit.as_json(plan.fit),
        "lack_model": plan.lacking,
        "old_code": plan.old_code,
        "raw": raw_folder(plan),
        "prepare": prepare_words(plan),
        "link_mbit": plan.fit.link_mbit,
        "speeds": plan.speeds.rows_per_s,
        "warnings": plan.warnings,
        "nodes": [
            {key: value for key, value in asdict(node).items() if key != "look"}
            | {"card": node.look["way"].get("card"), "home": node.look["home"], "cores": node.look["cores"]}
            for node in plan.nodes
        ],
    }
