"""Where each node has the frozen base while it trains: on its graphics card, or streamed to it layer by layer. Pure.

A base that fits is held. One that does not is streamed from the node's main memory, where that holds the layers, else
straight from its files, where these have them in the form that is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from train.plan.machines.nodes import Device
from train.plan.model.catalogue import AnyFacts, Facts
from train.plan.model.memory import GIB, USABLE, Setup, fits, gib, layer_bytes, memory

MAIN_MEMORY = 0.8
"""The part of a node's main memory that the layers may take."""
FREE = f"{1 - USABLE:.0%} stay free".replace("%", " %")


@dataclass(frozen=True, slots=True)
class Place:
    weights: str
    """gpu or stream."""
    why: str = ""
    from_bytes: int = 0
    """What the layers take where they come from."""
    missing_bytes: int = 0
    """Main memory for want of which the base cannot be streamed."""
    from_files: str = ""
    """The form in which it could be streamed without that memory: that of its files, which are read in each step."""


HELD = Place("gpu")


def on_node(setup: Setup, node: Device) -> Setup:
    """The setup as this node has it: a CPU holds the base in fp32, and without memory beside the GPU nothing waits
    there."""
    if not node.is_gpu:
        return replace(setup, device="cpu", load_in="32bit")
    return setup if node.main_bytes else replace(setup, offloads=False)


def place(wanted: str, facts: AnyFacts | None, setup: Setup, node: Device) -> Place:
    """Where this node has the base. `setup`: as the base is to be held."""
    wanted = node.weights or wanted
    if wanted == "gpu" or setup.full:
        return HELD
    if not isinstance(facts, Facts):
        return Place("stream", "as set") if wanted == "stream" else HELD
    held = on_node(setup, node)
    total = layer_bytes(facts, held)
    if wanted == "auto" and (
        held.load_in == "8bit"
        or fits(facts, replace(held, micro_batch=1), node.memory_bytes)
        or not fits(facts, replace(held, weights="stream"), node.memory_bytes)
    ):
        return HELD
    in_files = held.load_in in ("16bit", "32bit") or facts.on_disk == held.load_in
    source = "its files"
    if node.is_gpu and total <= MAIN_MEMORY * node.main_bytes:
        source = "main memory"
    elif not in_files and node.is_gpu:
        missing, whole = int(total / MAIN_MEMORY - node.main_bytes), replace(held, weights="stream", load_in="16bit")
        from_files = "16bit" if not facts.on_disk and fits(facts, whole, node.memory_bytes) else ""
        return Place("gpu", missing_bytes=missing, from_bytes=total, from_files=from_files)
    what = f"{gib(total)} of layers come from {source}"
    if wanted == "stream":
        return Place("stream", f"as set; {what}", total)
    need, has = gib(memory(facts, held).total), f"{node.memory_bytes / GIB:.0f} GB"
    return Place("stream", f"{need} do not fit its {has}, of which {FREE}; {what}", total)


def lacks(place: Place) -> str:
    """What is missing to stream it, for a node that cannot hold it."""
    if not place.missing_bytes:
        return ""
    return f"; to stream it, {gib(place.missing_bytes)} more main memory are needed"
