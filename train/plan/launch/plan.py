"""The plan: what a launch decided, and all that the later steps need."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from train.layout import BASE_MODELS, RAW_DATA
from train.plan.estimate.pipeline_prediction import rows_in_pipe
from train.plan.machines.nodes import PlanNode, Speeds
from train.plan.placement import fit
from train.plan.placement.pipeline_placement import as_data as as_pipe
from train.plan.settings import own_recipe
from train.plan.settings.every_run import COMMON_COUNTS
from train.plan.settings.request import HELP, Request, about_dataset
from train.plan.speed.speedup import wire_for


@dataclass(kw_only=True, slots=True)
class Plan:
    request: Request
    nodes: list[PlanNode]
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
    sizes: list[dict[str, Any]] = field(default_factory=list)
    """What could be trained instead, of a recipe whose sizes have names."""
    warnings: list[str] = field(default_factory=list)

    @property
    def run(self) -> str:
        return self.request.config.run

    @property
    def wire(self) -> str:
        chosen = str(self.settings["wire"])
        return wire_for(self.fit.seconds["fp32"]) if chosen == "auto" else chosen

    @property
    def sync_s(self) -> float:
        return self.fit.seconds[self.wire]


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
    return "" if data.embedded else f"{plan.nodes[0].look['home']}/{RAW_DATA}/{data.local_name}"


def prepare_words(plan: Plan) -> list[str]:
    """How the head makes rows of the data: `python -m train` …"""
    raw, data = raw_folder(plan), plan.request.dataset
    source = f"{raw}/{data.file.resolve().name}" if data.file else raw or data.name
    base = (
        f"{plan.nodes[0].look['home']}/{BASE_MODELS}/{plan.model['folder_name']}" if plan.model["folder_name"] else ""
    )
    model = base or tokenizer_to_bring(plan).get("place", "")
    recipe = [
        f"--recipe={found['place']}/{name}" for found in [recipe_to_bring(plan)] for name in found.get("files", ())
    ]
    config = plan.request.config
    patience = [f"--patience={config.patience}"] if config.patience else []
    own = [*recipe, *config.prepare_words(model), *patience]
    passed_over = [f"--passed-over={data.passed_over}"] if data.passed_over else []  # it is not brought to the head
    return ["prepare", "--json", f"--dataset={source}", *own, *passed_over]


def recipe_to_bring(plan: Plan) -> dict[str, Any]:
    """The file of a recipe of one's own, for the head, which hands it on with the rows: where it is and goes."""
    if not own_recipe.is_file(plan.settings["recipe"]):
        return {}
    path, sha256 = Path(plan.settings["recipe"]), plan.settings["recipe_hash"]
    place = f"{plan.nodes[0].look['home']}/{RAW_DATA}/recipe-{sha256[:12]}"
    files = {path.name: {"size": path.stat().st_size, "sha256": sha256}}
    return {"folder": str(path.parent), "files": files, "place": place}


def tokenizer_to_bring(plan: Plan) -> dict[str, Any]:
    """The tokenizer of another model, for the head: where it comes from and where it goes. Empty where none is needed,
    and for one that the head makes itself."""
    model = plan.request.config.tokenizer_model(plan.request.home)
    if model is None or (model.embedded and not model.folder):
        return {}
    folder = str(model.folder.resolve()) if model.folder else ""
    place = f"{plan.nodes[0].look['home']}/{RAW_DATA}/tokenizer-{model.local_name}"
    return {"name": model.name, "hub": model.hub, "folder": folder, "place": place}


def calibrate_words(plan: Plan) -> list[str]:
    """How a node is told to measure its speed, in its home: `python -m train` … Empty where only rows can show it."""
    if own_recipe.is_file(plan.settings["recipe"]):
        return []
    config, settings = plan.request.config, plan.settings
    names = [*COMMON_COUNTS, *config.COUNTED]
    own = {"model": f"{BASE_MODELS}/{plan.model['folder_name']}"} if plan.model["folder_name"] else {}
    given = {name: settings[name] for name in dict.fromkeys(["recipe", *names]) if settings[name] is not None} | own
    return ["calibrate", "--json", *(f"--{name.replace('_', '-')}={as_word(value)}" for name, value in given.items())]


def own_calibrate_words(plan: Plan, entry: fit.NodeFit) -> list[str]:
    """What is this node's own of it: where it has the base, or its part of the model."""
    if "weights" not in plan.settings:
        return []
    cut = plan.fit.cut
    words = [f"--weights={entry.place.weights}", *([f"--pipes={plan.settings['pipes']}"] if cut else [])]
    if entry.place.weights == "stream":  # it tries no more rows at a time than an even share
        words.append(f"--rows-per-step={-(-plan.settings['rows_per_step'] // sum(n.processes for n in plan.nodes))}")
    if cut and (part := cut.layers.get(entry.device.name)):
        rows = rows_in_pipe(plan.fit, plan.request.config, entry.device.name)
        count = (
            part[1] - part[0]
        ) // entry.device.processes  # where it has several cards, one of them measures its part
        words += [f"--part={part[0]}-{part[0] + count}", f"--micro-batch={rows}"]
    return words


def as_word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def as_data(plan: Plan) -> dict[str, Any]:
    """The plan as data, for the steps that follow and for `./motley plan --json`."""
    return {
        "run": plan.run,
        "step": plan.request.step,
        "anew": plan.request.from_start,
        "settings": plan.settings,
        "help": HELP | {spec.name: spec.metadata["help"] for spec in fields(plan.request.config)},
        "given": {name: plan.settings[name] for name in plan.request.given},
        "predicted": predicted(plan),
        "model": plan.model,
        "dataset": about_dataset(plan.request.dataset),
        "memory": fit.as_json(plan.fit),
        "lack_model": plan.lacking,
        "old_code": plan.old_code,
        "raw": raw_folder(plan),
        "prepare": prepare_words(plan),
        "calibrate": calibrate_words(plan),
        "tokenizer": tokenizer_to_bring(plan),
        "recipe": recipe_to_bring(plan),
        "link_mbit": plan.fit.link_mbit,
        "sizes": plan.sizes,
        "pipe": as_pipe(plan.fit.cut),
        "speeds": plan.speeds.rows_per_s,
        "warnings": plan.warnings,
        "nodes": [
            {key: value for key, value in asdict(node).items() if key != "look"}
            | {"interface": node.look["route"].get("nic"), "home": node.look["home"], "cores": node.look["cores"]}
            | {"weights": entry.place.weights, "calibrate": own_calibrate_words(plan, entry)}
            for node, entry in zip(plan.nodes, plan.fit.nodes, strict=True)
        ],
    }
