"""What `load_in: auto` becomes: the form in which the frozen base is held, 16bit, 8bit or 4bit. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts
from train.plan.model.memory import GIB, Setup, fits
from train.plan.settings.config import RunConfig

EIGHT_BIT = "in 8 bit the loss depends a little on how rows are shared: LLM.int8 looks at the whole batch"
UNQUANTISED = "the model before it was quantised"
AS_SET = ""
"""No reason of ours."""
SLOW = "on a CPU it is slow, and meant for tests"


def forms(config: RunConfig, facts: AnyFacts | None, devices: Sequence[Device]) -> list[str]:
    """The forms to choose from, the smallest last: one, where the settings or the model's files say which."""
    held, on_disk = config.holding, facts.on_disk if facts else ""
    if on_disk or held.load_in != "auto":
        return [on_disk or held.load_in]
    return ["16bit"] if held.full or not all_gpus(devices) else ["16bit", "4bit"]


def choose_form(config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None, setup: Setup) -> tuple[str, str]:
    """The largest form that fits every device, else the smallest; and why. BadInput where it cannot be had there."""
    on_disk, wanted = facts.on_disk if facts else "", config.holding.load_in
    if on_disk and wanted not in ("auto", on_disk):
        raise BadInput(
            f"load_in: {wanted}, but the model's files are in {on_disk}",
            fix=f"use load_in: {on_disk}, or {UNQUANTISED}",
        )
    *larger, smallest = forms(config, facts, devices)
    if on_disk or wanted != "auto":
        _require_quantising(smallest, devices, setup, instead=UNQUANTISED if on_disk else "load_in: 16bit")
        why = "so are the model's files" if on_disk and wanted == "auto" else AS_SET
        more = EIGHT_BIT if smallest == "8bit" else SLOW if smallest == "4bit" and not all_gpus(devices) else ""
        return smallest, f"{why or 'as set'}; {more}" if more else why
    if not larger:
        return smallest, "all weights are trained" if setup.full else "a CPU takes part"
    small = next((device for device in devices if not _holds_16bit(device, facts, setup)), None)
    if small is None:
        return "16bit", "it fits every GPU"
    return smallest, f"in 16 bit it does not fit {small.name}'s {small.memory_bytes / GIB:.0f} GB"


def _require_quantising(form: str, devices: Sequence[Device], setup: Setup, *, instead: str) -> None:
    if form == "16bit":
        return
    if setup.full:
        raise BadInput(f"load_in: {form} cannot be trained in full", fix=f"use {instead}")
    if without := names_of(device for device in devices if not device.bitsandbytes):
        raise BadInput(
            f"load_in: {form} needs bitsandbytes, which {without} has not",
            fix=f"use {instead}, or only nodes with a GPU",
        )


def _holds_16bit(device: Device, facts: AnyFacts | None, setup: Setup) -> bool:
    if facts is None:  # nothing but the size of its files is known: the rest of the memory is for training
        return device.base_bytes <= 0.5 * device.memory_bytes
    return fits(facts, setup, device.memory_bytes)


def all_gpus(devices: Iterable[Device]) -> bool:
    return all(device.is_gpu for device in devices)


def names_of(devices: Iterable[Device]) -> str:
    return ", ".join(sorted({device.name for device in devices}))
