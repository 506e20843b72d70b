"""What a job of Slurm runs by, from the plan: scripts/launch_cluster.sbatch, and each run's settings."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from console import launched, render
from console.infra import Facts, OnNode
from console.infra.slurm.options import LEAVE_S, of_job
from train.runlog import paths

SCRIPT = "scripts/launch_cluster.sbatch"


def files(known: Facts, args: Facts) -> OnNode:
    plan = dict(args["plan"]) | {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
    made = rendered(plan, of_job(known), dict(args.get("environment") or {}))
    launched.keep(made, Path(args["state_folder"]))
    params = {
        "home": plan["home"],
        "files": json.dumps(made),
        "aside": [f"jobs/{run}" for run in plan["runs"]] if plan["anew"] else [],
        "aside_as": f".before-{time.strftime('%Y%m%d-%H%M%S')}",
    }
    return OnNode("node_files", params)


def rendered(plan: dict[str, Any], options: list[str], more: dict[str, Any]) -> list[dict[str, Any]]:
    """Path below motley_home, content and mode of each file; of a sweep, the settings of each of its runs."""
    runs = plan.get("sweep") or [{"run": plan["run"], "settings": {}, "swept": {}}]
    return [script(plan, options, more), *(made for one in runs for made in of_run(plan, one))]


def script(plan: dict[str, Any], options: list[str], more: dict[str, Any]) -> dict[str, Any]:
    values = {
        "run": plan["run"],
        "home": plan["home"],
        "nodes": 1,
        "leave_s": LEAVE_S,
        "options": options,
        "sweep": [one["run"] for one in plan.get("sweep", [])],
        "more": render.checked_environment(more),
    }
    return {"path": SCRIPT, "content": render.rendered("launch_cluster.sbatch.j2", values), "mode": 0o700}


def of_run(plan: dict[str, Any], one: dict[str, Any]) -> list[dict[str, Any]]:
    own = plan | {"run": one["run"], "settings": plan["settings"] | one["settings"] | {"run": one["run"]}}
    own["given"] = plan["given"] | one["swept"]
    streams = [node for node in plan["nodes"] if node["weights"] == "stream"]
    settings = render.settings_of(
        own, next(iter([*streams, *plan["nodes"]]))
    )  # one file for all: as the smallest needs
    del settings["home"]  # each place has its own, $MOTLEY_HOME
    values = {"run": own["run"], "settings": settings, "help": plan["help"]}
    job = f"jobs/{own['run']}"
    launched = render.launched(own, swept=one["swept"])
    return [
        {
            "path": f"{job}/{paths.SETTINGS}",
            "content": render.rendered("training_config.yaml.j2", values),
            "mode": 0o644,
        },
        {"path": f"{job}/output/.kept", "content": "", "mode": 0o644},
        launched | {"path": f"{job}/{launched['path']}"},
    ]
