"""What a job of Slurm runs by, from the plan: scripts/launch_cluster.sbatch, and each run's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import strftime
from typing import Any, ClassVar

from console import launch_records, notice_address, render
from console.infra import Facts, OnNode
from console.infra.slurm.sbatch_options import LEAVE_S, of_job
from console.render import File
from train.plan.launch.launch_plan import LaunchPlan, smallest
from train.plan.settings.read_settings import Settings
from train.runlog.secret import Secret

SCRIPT = "scripts/launch_cluster.sbatch"


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

    @classmethod
    def of(cls, plan: LaunchPlan, **own: Any) -> SlurmPlan:
        return cls(**{spec.name: getattr(plan, spec.name) for spec in fields(plan)}, **own)


def files(known: Facts, args: Facts) -> OnNode:
    plan, now = SlurmPlan.from_json(args["plan"]), strftime("%Y-%m-%dT%H:%M:%S%z")
    made = rendered(plan, of_job(known), args.get("environment") or {}, now)
    launch_records.keep(made, Path(args["state_folder"]))
    values = known["hostvars"][known["inventory_hostname"]]
    secret = render.secret_file(Secret(messages=notice_address.unlocked(values)))
    made += [replace(secret, path=f"jobs/{run}/{secret.path}") for run in plan.runs]
    params = {
        "home": plan.home,
        "files": render.as_json(made),
        "aside": [f"jobs/{run}" for run in plan.runs] if plan.older_on else [],
    }
    return OnNode("node_files", params)


def rendered(plan: SlurmPlan, options: list[str], more: Mapping[str, Any], time: str) -> list[File]:
    """The files of the job; of a sweep, the settings of each of its runs."""
    values = {
        "run": plan.run,
        "home": plan.home,
        "nodes": 1,
        "leave_s": LEAVE_S,
        "options": options,
        "sweep": [one.run for one in plan.sweep],
        "more": render.checked_environment(more),
    }
    runs = plan.sweep or [SweptRun(run=plan.run, swept={}, settings={})]
    return [
        File(SCRIPT, render.rendered("launch_cluster.sbatch.j2", values), 0o700),
        *(made for one in runs for made in of_run(plan, one, time)),
    ]


def of_run(plan: SlurmPlan, one: SweptRun, time: str) -> list[File]:
    settings = plan.settings | one.settings | {"run": one.run}
    given, asked = plan.given | one.swept, plan.asked | one.swept
    plan = replace(plan, run=one.run, settings=settings, given=given, asked=asked)
    made = [
        render.settings_file(plan, smallest(plan), "home"),  # each place has its own, $MOTLEY_HOME
        File("output/.kept", "", 0o644),
        render.launched(plan, time, swept=one.swept),
    ]
    return [replace(file, path=f"jobs/{plan.run}/{file.path}") for file in made]
