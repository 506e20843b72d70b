"""What `auto` becomes on these devices: backend, precision, the form of the base, gradient checkpointing. Pure.

One rule for a launch and for the trainer: a launch decides for all nodes, and the trainer finds nothing open.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts
from train.plan.model.memory import GIB, Setup, fits
from train.plan.placement import streaming
from train.plan.placement.fit import Decisions, setup_for
from train.plan.settings.config import RunConfig
from train.plan.settings.pipes import parse_pipes

MIXES = "unsloth lets samples of a gemma2 model that are computed together see each other"
UNCOMPARED = "under unsloth nothing of this family is compared with the files, which may lack a weight"
EIGHT_BIT = "in 8 bit the loss depends a little on how rows are shared: LLM.int8 looks at the whole batch"
UNQUANTISED = "the model before it was quantised"
AS_SET = ""
"""No reason of ours."""
SLOW = "on a CPU it is slow, and meant for tests"


def choose(config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None) -> Decisions:
    """What `auto` becomes on these devices; BadInput where what is set cannot be had there. Without the model's shape
    (a family whose memory is not known) the size of its files has to do."""
    gpu = all(device.is_gpu for device in devices)
    streams = streaming.who_streams(config, shape, setup_for(config, config.gradient_checkpointing), devices)
    if config.optimizer == "adamw8bit" and not gpu:
        without = _names(device for device in devices if not device.is_gpu)
        raise BadInput(f"optimizer: adamw8bit needs a GPU, which {without} has not", fix="use optimizer: adamw")
    backend, why_backend = _backend(config, devices, shape, gpu, streams)
    precision, why_precision = _precision(config, devices, gpu)
    checkpointing, why_checkpointing = _checkpointing(config, backend, gpu)
    setup = setup_for(config, checkpointing)
    load_in, why_load = _load_in(config, devices, shape, setup, gpu)
    whys = {
        f"backend {backend}": why_backend,
        f"precision {precision}": why_precision,
        f"base {'not quantised' if load_in == '16bit' else 'in ' + load_in}": why_load,
        f"gradient checkpointing {checkpointing}": why_checkpointing,
    }
    return Decisions(backend, precision, load_in, checkpointing, whys)


def _backend(
    config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None, gpu: bool, streams: list[str]
) -> tuple[str, str]:
    mixes = shape is not None and shape.family == "gemma2"
    wanted = config.holding.backend
    against = MIXES if mixes else UNCOMPARED if shape is None else ""
    if wanted == "unsloth" and against:
        raise BadInput(f"backend: {against}", fix="use backend: hf")
    without = _names(device for device in devices if not device.unsloth)
    if wanted == "unsloth" and without:
        raise BadInput(f"backend: it is unsloth, which {without} has not", fix="use backend: hf, or other nodes")
    if wanted != "auto":
        return wanted, AS_SET
    if not gpu:
        return "hf", f"no GPU on {_names(device for device in devices if not device.is_gpu)}"
    if against:
        return "hf", against
    if without:
        return "hf", f"unsloth is not installed on {without}"
    if parse_pipes(config.holding.pipes) or streams:
        return "hf", f"unsloth cannot stream, and {', '.join(streams)} must" if streams else "unsloth cuts no model"
    return "unsloth", "a GPU and unsloth on every node"


def _precision(config: RunConfig, devices: Sequence[Device], gpu: bool) -> tuple[str, str]:
    if config.precision != "auto":
        return config.precision, AS_SET
    if not gpu:
        return "fp32", "a CPU takes part"
    old = _names(device for device in devices if not device.bf16)
    return ("fp16", f"no bf16 on {old}") if old else ("bf16", "every GPU has it")


def _checkpointing(config: RunConfig, backend: str, gpu: bool) -> tuple[str, str]:
    if config.gradient_checkpointing != "auto":
        return config.gradient_checkpointing, AS_SET
    if not gpu:
        return "false", "main memory is plenty"
    return ("unsloth", "its own needs least") if backend == "unsloth" else ("true", "saves GPU memory")


def _load_in(
    config: RunConfig, devices: Sequence[Device], shape: AnyFacts | None, setup: Setup, gpu: bool
) -> tuple[str, str]:
    on_disk, wanted = shape.on_disk if shape else "", config.holding.load_in
    if on_disk and wanted not in ("auto", on_disk):
        raise BadInput(
            f"load_in: {wanted}, but the model's files are in {on_disk}",
            fix=f"use load_in: {on_disk}, or {UNQUANTISED}",
        )
    asked = on_disk or wanted
    if asked != "auto":
        _require_quantising(asked, devices, setup, instead=UNQUANTISED if on_disk else "load_in: 16bit")
        why = "so are the model's files" if on_disk and wanted == "auto" else AS_SET
        more = EIGHT_BIT if asked == "8bit" else SLOW if asked == "4bit" and not gpu else ""
        return asked, f"{why or 'as set'}; {more}" if more else why
    if not gpu or setup.full:
        return "16bit", "all weights are trained" if setup.full else "a CPU takes part"
    small = next((device for device in devices if not _holds_16bit(device, shape, setup)), None)
    if small is None:
        return "16bit", "it fits every GPU"
    return "4bit", f"in 16 bit it does not fit {small.name}'s {small.memory_bytes / GIB:.0f} GB"


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


def _holds_16bit(device: Device, shape: AnyFacts | None, setup: Setup) -> bool:
    if shape is None:  # nothing but the size of its files is known: the rest of the memory is for training
        return device.base_bytes <= 0.5 * device.memory_bytes
    return fits(shape, setup, device.memory_bytes)


def _names(devices: Iterable[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices}))
