"""How many answers are made side by side, and of which length, in the memory that is free."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from train.errors import CheckFailed
from train.plan.model.catalogue import Facts
from train.plan.model.memory import RUNTIME_BYTES, Setup, base_bytes

SLOTS = 8
LONGEST = 8192
"""Tokens of a conversation with its answer: more than people type, and what most machines have memory for."""
SHORTEST = 256
GB = 1e9


@dataclass(frozen=True, slots=True)
class Room:
    slots: int
    context: int
    """Tokens of a request with its answer, at most."""
    cache_bytes: int
    """For the keys and values of all of them."""


def room(facts: Facts, *, device: str, load_in: str, positions: int, free: int) -> Room:
    """Half of what the weights leave is for keys and values: a step's own parts need the rest."""
    kind = "cuda" if device.startswith("cuda") else "cpu"
    held = "32bit" if kind == "cpu" and load_in == "16bit" else load_in
    setup = replace(Setup(), device=kind, load_in=held)
    weights = base_bytes(facts, setup) + RUNTIME_BYTES[kind]
    token_bytes = 2 * facts.layers * facts.kv_heads * facts.head_dim * (4 if kind == "cpu" else 2)
    fits = (free - weights) // 2 // token_bytes
    wanted = min(positions or LONGEST, LONGEST)
    if fits < min(SHORTEST, wanted):
        needs = weights + 2 * token_bytes * min(SHORTEST, wanted)
        where = "its card" if kind == "cuda" else "its memory"
        raise CheckFailed(f"the model needs {needs / GB:.1f} GB, and {max(0, free) / GB:.1f} GB of {where} are free")
    context = int(min(wanted, fits))
    slots = int(max(1, min(SLOTS, fits // context)))
    return Room(slots, context, slots * context * token_bytes)


def free_bytes(device: str) -> int:
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(int(device.partition(":")[2] or 0))[0])
    meminfo = Path("/proc/meminfo").read_text()
    return int(meminfo.partition("MemAvailable:")[2].split()[0]) * 1024
