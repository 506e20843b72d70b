"""What this process computes on: the facts that `decide` wants from every rank."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from train.errors import BadInput
from train.plan.machines.architectures import BF16_SINCE
from train.plan.machines.nodes import Device
from train.plan.model import weight_files
from train.plan.settings.read_settings import RunConfig

ALIKE = "MOTLEY_CARDS_ALIKE"


def look(config: RunConfig, node: str, local_rank: int, base: Path | None) -> Device:
    """The facts of this rank."""
    import torch

    cuda = torch.cuda.is_available()
    main_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if config.device == "cuda" and not cuda:
        raise BadInput(f"device: cuda, and {node} has no usable GPU", fix="see: ./motley doctor; on it: nvidia-smi")
    if cuda and config.device != "cpu":
        if local_rank >= torch.cuda.device_count():
            hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
            why = "one process a GPU" if hidden is None else f"CUDA_VISIBLE_DEVICES={hidden} there hides the others"
            raise BadInput(f"{node} has {torch.cuda.device_count()} GPUs and more processes", fix=why)
        memory = torch.cuda.get_device_properties(local_rank).total_memory
        main_bytes = 0 if in_main_memory(local_rank) else main_bytes
        bf16, capability = has_bf16(local_rank), capability_of(local_rank)
        device = f"cuda:{local_rank}"
    else:
        memory, bf16, device, capability = main_bytes, True, "cpu", ""
    weight_bytes = sum(file.stat().st_size for file in weight_files.files(base)) if base else 0
    return Device(
        node,
        device,
        memory,
        bf16=bf16,
        unsloth=importlib.util.find_spec("unsloth") is not None,
        bitsandbytes=importlib.util.find_spec("bitsandbytes") is not None,
        base_bytes=weight_bytes,
        main_bytes=main_bytes,
        weights=config.holding.weights,
        capability=capability,
        alike=cards_alike(),
    )


def capability_of(gpu: int) -> str:
    import torch

    return "{}.{}".format(*torch.cuda.get_device_capability(gpu))


def cards_alike() -> tuple[str, ...]:
    """Pairs of kinds of cards that pair-adapters has proven, as their owner keeps them: 8.6+8.9,8.6+12.0"""
    pairs = os.environ.get(ALIKE, "").replace(" ", "").split(",")
    return tuple("+".join(sorted(pair.split("+"), key=float)) for pair in pairs if pair)


def has_bf16(gpu: int) -> bool:
    return float(capability_of(gpu)) >= BF16_SINCE


def in_main_memory(gpu: int | str) -> bool:
    """Whether its memory is the machine's own: what is there cannot be beside it as well."""
    import torch

    return bool(torch.cuda.get_device_properties(gpu).is_integrated)


def best_device() -> str:
    """Where this machine works alone, as for an answer: its first GPU, else its processor."""
    import torch

    return "cuda:0" if torch.cuda.is_available() else "cpu"


def precision_of(device: str) -> str:
    """What one device computes in where it works alone, as for an answer."""
    if device == "cpu":
        return "fp32"
    return "bf16" if has_bf16(int(device.rpartition(":")[2])) else "fp16"
