"""The files that a node runs by, from the plan: plain data in, plain text out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from train.errors import BadInput
from train.plan.settings import own_recipe

TEMPLATES = Path(__file__).parents[1] / "templates"
PLAIN = re.compile(r"(?!(?:true|false|yes|no|on|off|null|y|n)$)[A-Za-z~/][A-Za-z0-9_./~,-]*", re.IGNORECASE)
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
SCRIPT = "scripts/launch_cluster.sh"
FILES = {
    "config/training_config.yaml": ("training_config.yaml.j2", 0o644),
    "config/cluster_config.yaml": ("cluster_config.yaml.j2", 0o600),
}
"""Path below motley_home → template and mode. The cluster's file holds the run's token, the script what you
set in motley_render_environment: both are the user's alone."""
ASIDE = {
    "hours": "motley_hours",
    "on_battery": "motley_on_battery",
    "in_use": "motley_step_aside",
    "programs": "motley_step_aside_programs",
}
AGENT = [
    *("env/bin/python", "-m", "train", "agent"),
    *("--cluster", "config/cluster_config.yaml", "--config", "config/training_config.yaml"),
]


def as_yaml(value: Any) -> str:
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    return json.dumps(value, ensure_ascii=False)


def files(
    plan: dict[str, Any],
    node: str,
    token: str,
    ports: dict[str, Any],
    more: dict[str, Any],
    *,
    aside: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Path, content and mode of each file of one node."""
    own = next(entry for entry in plan["nodes"] if entry["name"] == node)
    values = {
        "run": plan["run"],
        "node": node,
        "token": token,
        "nodes": plan["nodes"],
        "nic": own["interface"],
        "aside": aside or {},
        "pipe": plan.get("pipe") or {},
        "settings": settings_of(plan, own),
        "help": plan["help"],
        **ports,
    }
    made = [
        {"path": path, "content": rendered(template, values), "mode": mode} for path, (template, mode) in FILES.items()
    ]
    return [launch_script(plan, node, more, command=AGENT, offline=True), *made, launched(plan)]


def aside_of(values: Mapping[str, Any], not_before: float, then: str = "") -> dict[str, Any]:
    """When this machine steps aside, as its owner has set it, when the run may begin, and what follows it."""
    of_launch = {"not_before": not_before, "then": then}
    own = {key: values.get(name) for key, name in ASIDE.items()}
    return {key: value for key, value in {**of_launch, **own}.items() if value}


LIMITS = {"watts": "motley_power_limit_w", "celsius": "motley_max_celsius"}


def card_limits(values: Mapping[str, Any]) -> str:
    """What its graphics card may draw and how hot it may get in this run: for templates/motley-card.sh.j2."""
    return "".join(f"{key}={int(values[name])}\n" for key, name in LIMITS.items() if values.get(name))


def launch_script(
    plan: dict[str, Any], node: str, more: dict[str, Any], *, command: list[str], offline: bool = False
) -> dict[str, Any]:
    """What starts this node's part, by hand too. `offline`: all that it needs was brought to the node."""
    own = next(entry for entry in plan["nodes"] if entry["name"] == node)
    others = [entry["address"] for entry in plan["nodes"] if entry["name"] != node]
    values = {
        "run": plan["run"],
        "node": node,
        "nic": own["interface"],
        "route": f"{own['interface']!r} leads to {', '.join(others)} (ip route get)"
        if others
        else "this node trains alone",
        "cores": own["cores"],
        "processes": own["processes"],
        "threads": max(1, own["cores"] // own["processes"]),
        "more": checked_environment(more),
        "offline": offline,
        "command": shlex.join(command),
    }
    return {"path": SCRIPT, "content": rendered("launch_cluster.sh.j2", values), "mode": 0o700}


def checked_environment(more: dict[str, Any]) -> dict[str, Any]:
    for name in more:
        if not VARIABLE.fullmatch(name):
            raise BadInput(
                f"motley_render_environment: {name!r} cannot name a variable\nfix: letters, digits and underscores"
            )
    return more


def rendered(template: str, values: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  shell and YAML, each value quoted by its own filter
    )
    environment.filters |= {"yaml": as_yaml, "sh": lambda text: shlex.quote(str(text))}
    return environment.get_template(template).render(values)


def settings_of(plan: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """The settings for `train run`: names have become folders of this node, and what is not set is omitted."""
    settings, home = {name: value for name, value in plan["settings"].items() if value is not None}, own["home"]
    if settings.get("device") == "auto":
        settings["device"] = own["device"]  # a GPU that is gone later must not make a slow processor take its part
    if "weights" in settings:
        settings["weights"] = own["weights"]
    model = plan["model"]
    in_catalogue = model["source"] == "catalogue" and not model.get("in_4bit")
    if "model" in settings and model["source"] != "new":
        settings["model"] = model["name"] if in_catalogue else f"{home}/models/base/{model['folder_name']}"
    settings["dataset"] = f"{home}/data/processed/{plan['dataset']['folder_name']}"
    if own_recipe.is_file(settings.get("recipe", "")):
        settings["recipe"] = f"{settings['dataset']}/recipe.py"  # it comes with its rows
    first = ("run", "model", "dataset")
    return (
        {name: settings[name] for name in first if name in settings}
        | {"home": home}
        | {name: value for name, value in settings.items() if name not in first}
    )


def launched(plan: dict[str, Any], **more: Any) -> dict[str, Any]:
    """What is wanted to know of it later: to continue it, to predict another's speed, to use what it has made."""
    kept = {
        "run": plan["run"],
        "time": plan["time"],
        "given": {name: value for name, value in plan["given"].items() if name != "resume"},
        "all": plan["settings"],
        "predicted": plan["predicted"],
        "electricity": {name: plan["electricity"].get(name) for name in ("kwh_price", "currency", "idle_watts")},
        "model": {name: plan["model"].get(name) for name in ("name", "hub", "folder_name")},
        "rows": plan["dataset"]["folder_name"],
        "nodes": [entry["name"] for entry in plan["nodes"]],
        **more,
        "streams": [entry["name"] for entry in plan["nodes"] if entry["weights"] == "stream"],
    }
    content = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    return {"path": f"logs/runs/{plan['run']}/launch.json", "content": content, "mode": 0o644}
