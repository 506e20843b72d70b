"""The files that a node runs by, from the plan: plain text."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jinja2

from train.errors import BadInput
from train.layout import ADAPTERS
from train.plan.launch.cluster_config import ClusterConfig, Member
from train.plan.launch.launch_plan import LaunchPlan, NodePlan, TrainingNode, own
from train.plan.launch.torchrun import TorchrunPlan
from train.plan.settings.read_settings import Settings
from train.plan.settings.rewards import with_rows
from train.plan.settings.step_aside_rules import AsideRules, rules
from train.runlog import paths
from train.runlog.secret import Secret

TEMPLATES = Path(__file__).parents[1] / "templates"
PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[A-Za-z~/][A-Za-z0-9_./~,-]*", re.IGNORECASE)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SCRIPT = "scripts/launch_cluster.sh"
ASIDE = {
    "hours": "motley_hours",
    "on_battery": "motley_on_battery",
    "in_use": "motley_step_aside",
    "programs": "motley_step_aside_programs",
}
AGENT = ["env/bin/python", "-m", "train", "agent", "--cluster", paths.CLUSTER, "--config", paths.SETTINGS]


def as_yaml(value: Any) -> str:
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class File:
    """A file for node_files, below a node's home."""

    path: str
    content: str
    mode: int


def as_json(files: Iterable[File]) -> str:
    return json.dumps([asdict(file) for file in files])


def files(
    plan: LaunchPlan,
    node: str,
    secret: Secret,
    ports: Mapping[str, Any],
    more: Mapping[str, Any],
    *,
    time: str,
    **of_owner: Any,
) -> list[File]:
    """`of_owner`: what else the cluster's file says of this node. The script may hold secrets too, of
    motley_render_environment."""
    here = own(plan.nodes, node)
    require_visible(more, here)
    return [
        launch_script(plan.run, here, plan.nodes, more, command=AGENT, offline=True),
        settings_file(plan, here),
        File(paths.CLUSTER, cluster_of(plan, here, {**ports, **of_owner}).to_text(), 0o644),
        secret_file(secret),
        launched(plan, time),
    ]


def secret_file(secret: Secret) -> File:
    return File(paths.SECRET, secret.to_json(), 0o600)


def cluster_of(plan: LaunchPlan | TorchrunPlan, here: NodePlan, more: Mapping[str, Any]) -> ClusterConfig:
    nodes = tuple(Member(name=node.name, address=node.address, processes=node.processes) for node in plan.nodes)
    pipe = plan.pipe if isinstance(plan, LaunchPlan) else None
    nic = here.interface or ""
    return ClusterConfig(run=plan.run, node=here.name, nodes=nodes, interface=nic, pipe=pipe, **more)


def settings_file(plan: LaunchPlan, here: TrainingNode, *without: str) -> File:
    """`without`: settings that are each node's own where all read one file."""
    settings = {name: value for name, value in settings_of(plan, here).items() if name not in without}
    values = {"run": plan.run, "settings": settings, "help": plan.help}
    return File(paths.SETTINGS, rendered("training_config.yaml.j2", values), 0o644)


def aside_of(values: Mapping[str, Any], not_before: float, then: str = "") -> AsideRules:
    """When this machine steps aside, as its owner has set it, when the run may begin, and what follows it."""
    of_launch = {"not_before": not_before, "then": then}
    own = {key: values.get(name) for key, name in ASIDE.items()}
    return rules({key: value for key, value in {**of_launch, **own}.items() if value})


LIMITS = {"watts": "motley_power_limit_w", "celsius": "motley_max_celsius"}


def card_limits(values: Mapping[str, Any]) -> dict[str, int]:
    return {key: int(values[name]) for key, name in LIMITS.items() if values.get(name)}


def launch_script(
    run: str,
    here: NodePlan,
    nodes: Sequence[NodePlan],
    more: Mapping[str, Any],
    *,
    command: list[str],
    offline: bool = False,
) -> File:
    """What starts this node's part, by hand too. `offline`: all that it needs was brought to the node."""
    others = ", ".join(node.address for node in nodes if node.name != here.name)
    values = {
        "run": run,
        "node": here.name,
        "nic": here.interface,
        "route": f"{here.interface!r} leads to {others} (ip route get)" if others else "this node trains alone",
        "cores": here.cores,
        "processes": here.processes,
        "threads": max(1, here.cores // here.processes),
        "more": checked_environment(more),
        "offline": offline,
        "command": shlex.join(command),
    }
    return File(SCRIPT, rendered("launch_cluster.sh.j2", values), 0o700)


def checked_environment(more: Mapping[str, Any]) -> dict[str, Any]:
    for name in more:
        if not VARIABLE.fullmatch(name):
            raise BadInput(
                f"motley_render_environment: {name!r} cannot name a variable\nfix: letters, digits and underscores"
            )
    return dict(more)


def require_visible(more: Mapping[str, Any], here: TrainingNode) -> None:
    """Requires that each process sees its card: the plan counts those that nvidia-smi shows."""
    if "CUDA_VISIBLE_DEVICES" in more and here.device == "cuda":
        seen = len([card for card in str(more["CUDA_VISIBLE_DEVICES"]).split(",") if card.strip() not in ("", "-1")])
        if seen < here.processes:
            raise BadInput(
                f"motley_render_environment: CUDA_VISIBLE_DEVICES shows {seen} of the {here.processes} cards that "
                f"{here.name} is to compute on",
                fix=f"fix: motley_processes: {seen} for {here.name} as well" if seen else "fix: motley_gpu: none",
            )


def rendered(template: str, values: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  shell and YAML, each value quoted by its own filter
    )
    environment.filters |= {"yaml": as_yaml, "sh": lambda text: shlex.quote(str(text))}
    return environment.get_template(template).render(values)


def settings_of(plan: LaunchPlan, here: TrainingNode) -> Settings:
    """The settings for `train run`: names have become folders of this node, and what is not set is omitted."""
    settings, home = {name: value for name, value in plan.settings.items() if value is not None}, here.home
    if settings.get("device") == "auto":
        settings["device"] = here.device  # a GPU that is gone later must not make a slow processor take its part
    if "weights" in settings:
        settings["weights"] = here.weights
    model = plan.model
    in_catalogue = model.source == "catalogue" and not model.in_4bit
    if "model" in settings and model.source != "new":
        # A name of the catalogue stays: resolve_model finds the node's own copy below MOTLEY_HOME.
        settings["model"] = model.name if in_catalogue else f"{home}/models/base/{model.folder_name}"
    settings.pop("chat_template", None)  # what it wrote is in the rows
    if plan.adapter is None:
        settings = {name: value for name, value in settings.items() if name not in ("adapter", "adapter_hash")}
    else:
        settings["adapter"] = f"{home}/{ADAPTERS}/{plan.adapter.folder_name}"
    settings = with_rows(settings, f"{home}/data/processed/{plan.dataset.folder_name}")
    first: Settings = {name: settings.pop(name) for name in ("run", "model", "dataset") if name in settings}
    return {**first, "home": home, **settings}


def launched(plan: LaunchPlan, time: str, **more: Any) -> File:
    """What is wanted to know of it later: to continue it, to predict another's speed, to use what it has made."""
    kept = {
        "run": plan.run,
        "time": time,
        "begun_again": plan.begun_again,
        "given": {name: value for name, value in plan.given.items() if name != "resume"},
        "asked": plan.asked,
        "all": plan.settings,
        "predicted": asdict(plan.predicted) if plan.predicted else {},
        "electricity": {name: getattr(plan.electricity, name) for name in ("kwh_price", "currency", "idle_watts")},
        "model": {name: getattr(plan.model, name) for name in ("name", "hub", "folder_name")},
        "rows": plan.dataset.folder_name,
        "nodes": [node.name for node in plan.nodes],
        **more,
        "streams": [node.name for node in plan.nodes if node.weights == "stream"],
    }
    return File(f"logs/runs/{plan.run}/launch.json", json.dumps(kept, indent=1, ensure_ascii=False) + "\n", 0o644)
