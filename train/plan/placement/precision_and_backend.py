"""What these devices compute with: backend, precision, gradient checkpointing. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import BadInput
from train.plan.machines.nodes import Device, all_gpus, names_of
from train.plan.model import weight_files
from train.plan.model.catalogue import AnyFacts
from train.plan.model.picture_facts import PictureFacts
from train.plan.settings import lora_relatives
from train.plan.settings.read_settings import RunConfig

MIXES = "unsloth lets samples of a gemma2 model that are computed together see each other"
UNCOMPARED = "under unsloth nothing of this family is compared with the files, which may lack a weight"
AS_SET = ""
"""No reason of ours."""
OVERFLOWS = ("gemma3", "gemma4", "qwen3_5")
"""Families that give NaN in fp16, by unsloth's own list; no miniature with random weights shows it."""


def backend(config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None) -> tuple[str, str]:
    """The backend where every device holds the whole base, and why."""
    wanted = config.holding.backend
    compared = isinstance(shape, PictureFacts) or (
        shape is not None and shape.family in weight_files.FAMILIES and not shape.wrapper
    )
    against = MIXES if shape is not None and shape.family == "gemma2" else "" if compared else UNCOMPARED
    against = lora_relatives.beyond_unsloth(config.holding) or against
    if wanted == "unsloth" and against:
        raise BadInput(f"backend: {against}", fix="use backend: hf")
    without = names_of(device for device in devices if not device.unsloth)
    if wanted == "unsloth" and without:
        raise BadInput(f"backend: it is unsloth, which {without} has not", fix="use backend: hf, or other nodes")
    if wanted != "auto":
        return wanted, AS_SET
    if not all_gpus(devices):
        return "hf", f"no GPU on {names_of(device for device in devices if not device.is_gpu)}"
    if against:
        return "hf", against
    if without:
        return "hf", f"unsloth is not installed on {without}"
    return "unsloth", "a GPU and unsloth on every node"


def precision(config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, AS_SET
    if not all_gpus(devices):
        return "fp32", "a CPU takes part"
    old = names_of(device for device in devices if not device.bf16)
    if old and shape is not None and shape.family.startswith(OVERFLOWS):
        return "fp32", f"no bf16 on {old}, and numbers of a {shape.family} model are too large for fp16"
    return ("fp16", f"no bf16 on {old}") if old else ("bf16", "every GPU has it")


def checkpointing(config: RunConfig, devices: Sequence[Device], chosen: str) -> tuple[str, str]:
    """Whether a backward pass computes forward again, and why. `chosen`: the backend."""
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, AS_SET
    if not all_gpus(devices):
        return "false", "main memory is plenty"
    return ("unsloth", "its own needs least") if chosen == "unsloth" else ("true", "saves GPU memory")


def require_optimizer(config: RunConfig, devices: Sequence[Device]) -> None:
    if config.optimizer == "adamw8bit" and not all_gpus(devices):
        without = names_of(device for device in devices if not device.is_gpu)
        raise BadInput(f"optimizer: adamw8bit needs a GPU, which {without} has not", fix="use optimizer: adamw")
