"""The automatic choices of a run, made once for all nodes from what each tells of itself. `decide` is pure."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train.config import RunConfig
from train.errors import BadInput


@dataclass(frozen=True)
class Facts:
    """What one rank tells the others before anything is decided."""

    node: str
    device: str
    bf16: bool
    memory_bytes: int
    unsloth: bool
    base_bytes: int


@dataclass(frozen=True)
class Decisions:
    backend: str
    precision: str
    load_in: str
    gradient_checkpointing: str
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "reasons"}


def look(config: RunConfig, node: str, local_rank: int, base: Path) -> Facts:
    """The facts of this rank."""
    import torch

    cuda = torch.cuda.is_available()
    if config.device == "cuda" and not cuda:
        raise BadInput(f"device: cuda, and {node} has no usable GPU", fix="check with: python -m train selftest")
    if cuda and config.device != "cpu":
        if local_rank >= torch.cuda.device_count():
            raise BadInput(f"{node} has {torch.cuda.device_count()} GPUs and more processes", fix="one process a GPU")
        memory = torch.cuda.get_device_properties(local_rank).total_memory
        bf16 = has_bf16(local_rank)
        device = f"cuda:{local_rank}"
    else:
        memory, bf16, device = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), True, "cpu"
    weights = sum(file.stat().st_size for file in base.glob("*.safetensors"))
    unsloth = importlib.util.find_spec("unsloth") is not None
    return Facts(node, device, bf16, memory, unsloth, weights)


def has_bf16(card: int) -> bool:
    import torch

    return bool(torch.cuda.get_device_capability(card) >= (8, 0))  # before that torch only emulates it


def precision_of(device: str) -> str:
    """What one device computes in where it works alone, as for an answer."""
    if device == "cpu":
        return "fp32"
    return "bf16" if has_bf16(int(device.rpartition(":")[2])) else "fp16"


def decide(config: RunConfig, facts: list[Facts]) -> Decisions:
    gpu = all(f.device != "cpu" for f in facts)
    backend, why_backend = _backend(config, facts, gpu)
    precision, why_precision = _precision(config, facts, gpu)
    load_in, why_load = _load_in(config, facts, gpu)
    checkpointing, why_checkpointing = _checkpointing(config, backend, gpu)
    reasons = (
        f"backend {backend}: {why_backend}",
        f"precision {precision}: {why_precision}",
        f"base {'not quantised' if load_in == '16bit' else 'in ' + load_in}: {why_load}",
        f"gradient checkpointing {checkpointing}: {why_checkpointing}",
    )
    return Decisions(backend, precision, load_in, checkpointing, reasons)


def _backend(config: RunConfig, facts: list[Facts], gpu: bool) -> tuple[str, str]:
    without = [f.node for f in facts if not f.unsloth]
    if config.backend != "auto":
        return config.backend, "as set"
    if not gpu:
        return "hf", f"no GPU on {', '.join(sorted({f.node for f in facts if f.device == 'cpu'}))}"
    if without:
        return "hf", f"unsloth is not installed on {', '.join(sorted(set(without)))}"
    return "unsloth", "a GPU and unsloth on every node"


def _precision(config: RunConfig, facts: list[Facts], gpu: bool) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, "as set"
    if not gpu:
        return "fp32", "a CPU takes part"
    old = sorted({f.node for f in facts if not f.bf16})
    return ("fp16", f"no bf16 on {', '.join(old)}") if old else ("bf16", "every card has it")


def _load_in(config: RunConfig, facts: list[Facts], gpu: bool) -> tuple[str, str]:
    if config.load_in != "auto":
        if config.load_in != "16bit" and (not gpu or config.method == "full"):
            reason = "needs a GPU on every node" if not gpu else "cannot be trained in full"
            raise BadInput(f"load_in: {config.load_in} {reason}", fix="use load_in: 16bit")
        return config.load_in, "as set"
    if not gpu or config.method == "full":
        return "16bit", "no GPU" if not gpu else "all weights are trained"
    smallest = min(facts, key=lambda f: f.memory_bytes)
    if smallest.base_bytes > 0.5 * smallest.memory_bytes:
        return "4bit", f"the weights would fill more than half of {smallest.node}'s card"
    return "16bit", "the weights fill less than half of the smallest card"


def _checkpointing(config: RunConfig, backend: str, gpu: bool) -> tuple[str, str]:
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, "as set"
    if not gpu:
        return "false", "main memory is plenty"
    return ("unsloth", "its own way needs least") if backend == "unsloth" else ("true", "saves card memory")
