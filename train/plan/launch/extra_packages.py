"""Which environments a run needs beside the nodes' own, and where its workers find the packages of one. Pure.

A recipe that needs a library which training has no use for names the locked set (RunConfig.PACKAGES). The set holds
what the nodes' own environment lacks, lies below the cluster's folder and is layered over it: so the versions of what
both need are the nodes' own, and a run of another recipe never sees it. vLLM's is an environment for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from train.errors import BadInput
from train.layout import EXTRA_PACKAGES
from train.plan.launch import answer_server
from train.plan.launch.launch_plan import ExtraEnvironment
from train.plan.machines.nodes import PlanNode
from train.plan.settings.read_settings import RunConfig

IMPORTS = {"sweep": "optuna", "tasks": "lm_eval"}
"""Locked set → the module that shows that it is there."""


def environments(config: RunConfig, nodes: Sequence[PlanNode]) -> list[ExtraEnvironment]:
    server = answer_server.environment(config, nodes)
    wanted = [ExtraEnvironment(folder="vllm", sets=server, imports=["vllm"], layered=False)] if server else []
    if name := config.PACKAGES:
        folder = f"{EXTRA_PACKAGES}/{name}"
        wanted.append(ExtraEnvironment(folder=folder, sets=[name], imports=[IMPORTS[name]], layered=True))
    return wanted


def refuse_elsewhere(config: RunConfig, where: str) -> None:
    answer_server.refuse_elsewhere(config, where)
    if name := config.PACKAGES:
        what = f"recipe: {config.recipe} needs {IMPORTS[name]}, which comes to machines of your own, not to {where}"
        raise BadInput(what, fix="fix: --infra machines, at home")


def use(config: RunConfig) -> None:
    """Lets this process import what the recipe needs, behind all else: nothing of the nodes' own is replaced."""
    name = config.PACKAGES
    if not name or find_spec(IMPORTS[name]):
        return
    folder = config.home_folder / EXTRA_PACKAGES / name / "env"
    sites = [str(site) for site in Path(folder).glob("lib/python3*/site-packages")]
    if not sites:
        fix = f"./motley launch brings it; by hand: pip install -r requirements/{name}.txt"
        raise BadInput(f"recipe: {config.recipe} needs {IMPORTS[name]}, and {folder} is not there", fix=fix)
    sys.path.extend(sites)
