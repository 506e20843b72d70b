"""What `load_in: auto` becomes: the form in which the frozen base is held, 16bit, 8bit or 4bit. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import BadInput
from train.plan.machines.nodes import Device, all_gpus, names_of
from train.plan.model.catalogue import AnyFacts
from train.plan.model.memory import GIB, Setup, fits
from train.plan.placement.precision_and_backend import AS_SET
from train.plan.settings import lora_relatives
from train.plan.settings.read_settings import RunConfig

EIGHT_BIT = "in 8 bit the loss depends a little on how rows are shared: LLM.int8 looks at the whole batch"
UNQUANTISED = "the model before it was quantised"
SLOW = "on a CPU it is slow, and meant for tests"


def choose_form(config: RunConfig, devices: Sequence[Device], facts: AnyFacts | None, setup: Setup) -> tuple[str, str]:
    """16 bit where every device could hold the whole base so, else 4; and why. BadInput where it cannot be had there.
    `setup`: all but the form."""
    on_disk, wanted = facts.on_disk if facts else "", config.holding.load_in
    if on_disk and wanted not in ("auto", on_disk):
        raise BadInput(
            f"load_in: {wanted}, but the model's files are in {on_disk}",
            fix=f"use load_in: {on_disk}, or {UNQUANTISED}",
        )
    form, why = _as_known(on_disk or wanted, devices, setup, on_disk=bool(on_disk), is_set=wanted != "auto")
    if form == "auto":
        form, why = _largest(devices, facts, setup)
    if wrong := lora_relatives.wrong_form(config.holding, form):
        raise BadInput(wrong, fix=f"use load_in: 16bit, or leave {wrong.partition(':')[0]} out")
    return form, why


def _as_known(form: str, devices: Sequence[Device], setup: Setup, *, on_disk: bool, is_set: bool) -> tuple[str, str]:
    """The form that the settings or the model's files name; auto where they name none."""
    if form == "auto":
        return form, ""
    _require_quantising(form, devices, setup, instead=UNQUANTISED if on_disk else "load_in: 16bit")
    why = AS_SET if is_set else "so are the model's files"
    more = EIGHT_BIT if form == "8bit" else SLOW if form == "4bit" and not all_gpus(devices) else ""
    return form, f"{why or 'as set'}; {more}" if more else why


def _largest(devices: Sequence[Device], facts: AnyFacts | None, setup: Setup) -> tuple[str, str]:
    if setup.full:
        return "16bit", "all weights are trained"
    if not all_gpus(devices):
        return "16bit", "a CPU takes part"
    small = next((device for device in devices if not _holds_16bit(device, facts, setup)), None)
    if small is None:
        return "16bit", "it fits every GPU"
    return "4bit", f"in 16 bit it does not fit {small.name}'s {small.memory_bytes / GIB:.0f} GB"


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
