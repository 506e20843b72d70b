"""The automatic choices of a run: one rule for the plan of a launch and for the trainer. Pure, and without torch.

A launch decides for all nodes that are to take part, and writes it into the run's settings. Where `train run` is
started by hand, its first generation does (decided.py). From then on it is obeyed, whoever leaves or comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.errors import BadInput
from train.plan.catalogue import Facts
from train.plan.config import RunConfig
from train.plan.memory import GIB, LINEARS, Setup, fits

NAMES = ("backend", "precision", "load_in", "gradient_checkpointing")
CHECKPOINTING = {"auto": None, "true": True, "unsloth": True, "false": False}
MIXES = "unsloth lets samples of a gemma2 model that are computed together see each other"
EIGHT_BIT = "in 8 bit the loss depends a little on how rows are shared: LLM.int8 looks at the whole batch"
UNQUANTISED = "the model before it was quantised"
SLOW = "on a CPU it is slow, and meant for tests"


@dataclass(frozen=True, slots=True)
class Device:
    """What one process computes on."""

    node: str
    device: str
    """cpu, cuda or cuda:N."""
    memory_bytes: int
    bf16: bool = True
    unsloth: bool = True
    bitsandbytes: bool = True
    base_bytes: int = 0
    """Of the base's files, where they are here already."""

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class Decisions:
    backend: str
    precision: str
    load_in: str
    gradient_checkpointing: str
    reasons: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "reasons"}


def decide(config: RunConfig, devices: Sequence[Device], shape: Facts | None) -> Decisions:
    """`shape` is the model's; None for a family whose memory is not known."""
    gpu = all(device.is_gpu for device in devices)
    if config.optimizer == "adamw8bit" and not gpu:
        without = _names(device for device in devices if not device.is_gpu)
        raise BadInput(f"optimizer: adamw8bit needs a GPU, which {without} has not", fix="use optimizer: adamw")
    backend, why_backend = _backend(config, devices, shape, gpu)
    precision, why_precision = _precision(config, devices, gpu)
    checkpointing, why_checkpointing = _checkpointing(config, backend, gpu)
    setup = setup_for(config, backend, checkpointing)
    load_in, why_load = _load_in(config, devices, shape, setup, gpu)
    reasons = (
        f"backend {backend}: {why_backend}",
        f"precision {precision}: {why_precision}",
        f"base {'not quantised' if load_in == '16bit' else 'in ' + load_in}: {why_load}",
        f"gradient checkpointing {checkpointing}: {why_checkpointing}",
    )
    return Decisions(backend, precision, load_in, checkpointing, reasons)


def setup_for(config: RunConfig, backend: str, checkpointing: str) -> Setup:
    """What memory depends on, of a run with these settings; the base's form is still open."""
    named = LINEARS if config.lora_targets == "all-linear" else config.lora_targets.split(",")
    return Setup(
        lora_r=config.lora_r,
        lora_targets=tuple(name for name in LINEARS if name in named),
        row_length=config.max_seq_length,
        micro_batch=config.micro_batch or 1,
        checkpointing=CHECKPOINTING[checkpointing],
        optimizer_bytes=8 if config.optimizer == "adamw" else 2,
        fused_loss=backend == "unsloth",
        full=config.method == "full",
    )


def on_device(setup: Setup, device: Device) -> Setup:
    """A CPU holds the base in fp32 and computes the loss unfused."""
    return setup if device.is_gpu else replace(setup, device="cpu", load_in="32bit", fused_loss=False)


def _backend(config: RunConfig, devices: Sequence[Device], shape: Facts | None, gpu: bool) -> tuple[str, str]:
    mixes = shape is not None and shape.family == "gemma2"
    if config.backend == "unsloth" and mixes:
        raise BadInput(f"backend: {MIXES}", fix="use backend: hf")
    without = _names(device for device in devices if not device.unsloth)
    if config.backend == "unsloth" and without:
        raise BadInput(f"backend: it is unsloth, which {without} has not", fix="use backend: hf, or other nodes")
    if config.backend != "auto":
        return config.backend, "as set"
    if not gpu:
        return "hf", f"no GPU on {_names(device for device in devices if not device.is_gpu)}"
    if mixes:
        return "hf", MIXES
    if without:
        return "hf", f"unsloth is not installed on {without}"
    return "unsloth", "a GPU and unsloth on every node"


def _precision(config: RunConfig, devices: Sequence[Device], gpu: bool) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, "as set"
    if not gpu:
        return "fp32", "a CPU takes part"
    old = _names(device for device in devices if not device.bf16)
    return ("fp16", f"no bf16 on {old}") if old else ("bf16", "every GPU has it")


def _checkpointing(config: RunConfig, backend: str, gpu: bool) -> tuple[str, str]:
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, "as set"
    if not gpu:
        return "false", "main memory is plenty"
    return ("unsloth", "its own way needs least") if backend == "unsloth" else ("true", "saves GPU memory")


def _load_in(
    config: RunConfig, devices: Sequence[Device], shape: Facts | None, setup: Setup, gpu: bool
) -> tuple[str, str]:
    on_disk = shape.on_disk if shape else ""
    if on_disk and config.load_in not in ("auto", on_disk):
        raise BadInput(
            f"load_in: {config.load_in}, but the model's files are in {on_disk}",
            fix=f"use load_in: {on_disk}, or {UNQUANTISED}",
        )
    asked = on_disk or config.load_in
    if asked != "auto":
        _require_quantising(asked, devices, setup, instead=UNQUANTISED if on_disk else "load_in: 16bit")
        why = "so are the model's files" if on_disk and config.load_in == "auto" else "as set"
        more = EIGHT_BIT if asked == "8bit" else SLOW if asked == "4bit" and not gpu else ""
        return asked, f"{why}; {more}" if more else why
    if not gpu or setup.full:
        return "16bit", "all weights are trained" if setup.full else "a CPU takes part"
    small = next((device for device in devices if not _holds_16bit(device, shape, setup)), None)
    if small is None:
        return "16bit", "it fits every GPU"
    return "4bit", f"in 16 bit it does not fit {small.node}'s {small.memory_bytes / GIB:.0f} GB"


def _require_quantising(form: str, devices: Sequence[Device], setup: Setup, *, instead: str) -> None:
    if form == "16bit":
        return
    if setup.full:
        raise BadInput(f"load_in: {form} cannot be trained in full", fix=f"use {instead}")
    if without := _names(device for device in devices if not device.bitsandbytes):
        raise BadInput(
            f"load_in: {form} needs bitsandbytes, which {without} has not",
            fix=f"use {instead}, or only nodes with a GPU",
        )


def _holds_16bit(device: Device, shape: Facts | None, setup: Setup) -> bool:
    if shape is None:  # nothing but the size of its files is known: the rest of the memory is for training
        return device.base_bytes <= 0.5 * device.memory_bytes
    return fits(shape, replace(setup, load_in="16bit"), device.memory_bytes)


def _names(devices: Any) -> str:
    return ", ".join(sorted({device.node for device in devices}))
