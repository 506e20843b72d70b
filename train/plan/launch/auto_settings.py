"""What `auto` becomes on these devices: backend, precision, the form of the base, gradient checkpointing. Pure.

One rule for a launch and for the trainer: a launch decides for all nodes, and the trainer finds nothing open.
"""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model import weight_files
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.counts import counts_of
from train.plan.model.memory import gib
from train.plan.model.picture_facts import PictureFacts
from train.plan.placement import streaming
from train.plan.placement.fit import Decisions, setup_for
from train.plan.placement.forms import AS_SET, all_gpus, choose_form, forms, names_of
from train.plan.settings import lora_relatives
from train.plan.settings.config import RunConfig
from train.plan.settings.pipes import parse_pipes

MIXES = "unsloth lets samples of a gemma2 model that are computed together see each other"
UNCOMPARED = "under unsloth nothing of this family is compared with the files, which may lack a weight"

OVERFLOWS = ("gemma3", "gemma4", "qwen3_5")
"""Families that give NaN in fp16, by unsloth's own list; no miniature with random weights shows it."""


def choose(config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None) -> Decisions:
    """What `auto` becomes on these devices; BadInput where what is set cannot be had there. Without the model's shape
    (a family whose memory is not known) the size of its files has to do."""
    gpu = all_gpus(devices)
    smallest = setup_for(config, config.gradient_checkpointing, forms(config, shape, devices)[-1])
    streams = streaming.who_streams(config.holding.weights, shape, smallest, devices)
    if config.optimizer == "adamw8bit" and not gpu:
        without = names_of(device for device in devices if not device.is_gpu)
        raise BadInput(f"optimizer: adamw8bit needs a GPU, which {without} has not", fix="use optimizer: adamw")
    backend, why_backend = _backend(config, devices, shape, gpu, streams)
    precision, why_precision = _precision(config, devices, shape, gpu)
    checkpointing, why_checkpointing = _checkpointing(config, backend, gpu)
    load_in, why_load = choose_form(config, devices, shape, setup_for(config, checkpointing))
    if wrong := lora_relatives.wrong_form(config.holding, load_in):
        raise BadInput(wrong, fix=f"use load_in: 16bit, or leave {wrong.partition(':')[0]} out")
    whys = {
        f"backend {backend}": why_backend,
        f"precision {precision}": why_precision,
        f"base {'not quantised' if load_in == '16bit' else 'in ' + load_in}": why_load,
        **_experts(load_in, shape),
        f"gradient checkpointing {checkpointing}": why_checkpointing,
    }
    return Decisions(backend, precision, load_in, checkpointing, whys)


def _experts(load_in: str, shape: AnyFacts | None) -> dict[str, str]:
    """What of a mixture is not in the form of the rest."""
    found = counts_of(shape).experts if isinstance(shape, Facts) and load_in in ("4bit", "8bit") else {}
    size = gib(2 * sum(found.values()))
    return {f"experts in 16bit, {size}": f"bitsandbytes has linear layers alone in {load_in}"} if found else {}


def _backend(
    config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None, gpu: bool, streams: list[str]
) -> tuple[str, str]:
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
    if not gpu:
        return "hf", f"no GPU on {names_of(device for device in devices if not device.is_gpu)}"
    if against:
        return "hf", against
    if without:
        return "hf", f"unsloth is not installed on {without}"
    if parse_pipes(config.holding.pipes) or streams:
        return "hf", f"unsloth cannot stream, and {', '.join(streams)} must" if streams else "unsloth cuts no model"
    return "unsloth", "a GPU and unsloth on every node"


def _precision(config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None, gpu: bool) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, AS_SET
    if not gpu:
        return "fp32", "a CPU takes part"
    old = names_of(device for device in devices if not device.bf16)
    if old and shape is not None and shape.family.startswith(OVERFLOWS):
        return "fp32", f"no bf16 on {old}, and numbers of a {shape.family} model are too large for fp16"
    return ("fp16", f"no bf16 on {old}") if old else ("bf16", "every GPU has it")


def _checkpointing(config: RunConfig, backend: str, gpu: bool) -> tuple[str, str]:
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, AS_SET
    if not gpu:
        return "false", "main memory is plenty"
    return ("unsloth", "its own needs least") if backend == "unsloth" else ("true", "saves GPU memory")
