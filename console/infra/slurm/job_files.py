"""What a job of Slurm runs by, from the plan: scripts/launch_cluster.sbatch, and each run's settings."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from console import render
from console.render import File
from plugins.module_utils.motley.slurm_job import named
from train.errors import BadInput
from train.plan.launch.launch_plan import LaunchPlan, smallest
from train.plan.settings.config import Settings
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SweptRun:
    run: str
    swept: Settings
    """The settings in which it differs."""
    settings: Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class SlurmPlan(LaunchPlan):
    head: str
    """The login node: what a launch brings goes there."""
    home: str
    """The shared folder."""
    sweep: Sequence[SweptRun]
    runs: Sequence[str]
    lack_environment: bool
    environment_sets: Sequence[str]

    LISTS: ClassVar[Mapping[str, type[Any]]] = {**LaunchPlan.LISTS, "sweep": SweptRun}


def files(plan: SlurmPlan, options: list[str], more: Mapping[str, Any], time: str) -> list[File]:
    """Those of the job; of a sweep, the settings of each of its runs."""
    runs = plan.sweep or [SweptRun(run=plan.run, swept={}, settings={})]
    names = [one.run for one in plan.sweep]
    return [
        script(plan.run, plan.home, names, options, more),
        *(made for one in runs for made in of_run(plan, one, time)),
    ]


def script(run: str, home: str, sweep: list[str], options: list[str], more: Mapping[str, Any]) -> File:
    values = {
        "run": run,
        "home": home,
        "nodes": 1,
        "leave_s": LEAVE_S,
        "options": options,
        "sweep": sweep,
        "more": render.checked_environment(more),
    }
    return File(SCRIPT, render.rendered("launch_cluster.sbatch.j2", values), 0o700)


def of_run(plan: SlurmPlan, one: SweptRun, time: str) -> list[File]:
    settings = plan.settings | one.settings | {"run": one.run}
    plan = replace(plan, run=one.run, settings=settings, given=plan.given | one.swept)
    settings = render.settings_of(plan, smallest(plan))
    del settings["home"]  # each place has its own, $MOTLEY_HOME
    values = {"run": plan.run, "settings": settings, "help": plan.help}
    job, launched = f"jobs/{plan.run}", render.launched(plan, time, swept=one.swept)
    return [
        File(f"{job}/{paths.SETTINGS}", render.rendered("training_config.yaml.j2", values), 0o644),
        File(f"{job}/output/.kept", "", 0o644),
        replace(launched, path=f"{job}/{launched.path}"),
    ]
