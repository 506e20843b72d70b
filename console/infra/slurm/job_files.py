"""What a job of Slurm runs by, from the plan: scripts/launch_cluster.sbatch, and each run's settings."""

from __future__ import annotations

import shlex
from typing import Any

from console import render
from plugins.module_utils.motley.slurm_job import named
from train.errors import BadInput
from train.runlog import paths

SCRIPT = "scripts/launch_cluster.sbatch"
LEAVE_S = 90
"""Before its time is over a run saves: Slurm sends the signal up to a minute before that."""
OURS = ("ntasks-per-node", "ntasks", "n", "chdir", "D", "output", "o", "open-mode", "array", "a", "wrap", "parsable")
"""Options of sbatch on which the script relies."""


def options_of(text: str) -> list[str]:
    """One line of the script each; a value behind a space belongs to the option before it."""
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise BadInput(f"slurm_options: {wrong}", fix="fix: close the quotes") from None
    if any("\n" in word for word in words):
        raise BadInput("slurm_options: a line break stands in quotes", fix="fix: write each option on one line")
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-"):
            found.append([word])
        elif found:
            found[-1].append(word)
        else:
            raise BadInput(
                f"slurm_options: '{word}' is no option", fix="fix: options of sbatch, as --partition=gpu --nodes=3"
            )
    for option in found:
        name, _ = named(option)
        if name in OURS:
            raise BadInput(f"slurm_options: --{name} is the launch's own", fix="fix: take it out")
    return [shlex.join(option) for option in found]


def files(plan: dict[str, Any], options: list[str], more: dict[str, Any]) -> list[dict[str, Any]]:
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
