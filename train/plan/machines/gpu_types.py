"""What a card's name means, as people or Slurm's Gres write it: memory, of each name the least that is sold."""

from __future__ import annotations

import re
from typing import Any

from train.errors import BadInput
from train.plan.machines import architectures
from train.plan.machines.facts import Card

MEMORY_GB = {
    **{"5090": 32, "5080": 16, "5070ti": 16, "5070": 12, "5060ti": 8, "5060": 8, "4090": 24, "4080": 16, "4070ti": 12},
    **{"4070tisuper": 16, "4070max": 8, "4070": 12, "4060ti": 8, "4060": 8, "3090": 24, "3080ti": 12, "3080": 10},
    **{
        "3070": 8,
        "3060ti": 8,
        "3060": 12,
        "3050": 6,
        "2080ti": 11,
        "2080": 8,
        "2070": 8,
        "2060": 6,
        "1660": 6,
        "1650": 4,
    },
    **{"5090laptop": 24, "5080laptop": 16, "5070tilaptop": 12, "5070laptop": 8, "4090laptop": 16, "4080laptop": 12},
    **{"4070laptop": 8, "3080tilaptop": 16, "3080laptop": 8, "3060laptop": 6, "3050laptop": 4},
    **{"a100": 40, "h100": 80, "h200": 141, "b200": 180},
    **{"gh200": 96, "v100": 16, "t4": 16, "l40": 48, "l4": 24, "a10g": 24, "a10": 24, "a16": 16, "a30": 24, "a40": 48},
    **{"a6000": 48, "a5000": 24, "a4000": 16, "a2000": 6, "a1000": 4, "6000ada": 48},
}


def memory_gb(kind: str) -> float:
    """0 where the name does not say it."""
    letters = re.sub(r"[^a-z0-9]", "", kind.lower())
    return MEMORY_GB.get(max((name for name in MEMORY_GB if name in letters), key=len, default=""), 0)


def card(kind: str, given_gb: Any = None) -> Card:
    """A card as nvidia-smi would name it; its memory is what is given, else what its name means."""
    least_gb = memory_gb(kind)
    if not (given_gb or least_gb):
        raise BadInput(f"how much memory a card of type '{kind}' has is not known", fix="fix: --set slurm_gpu_gb=24")
    spaced = re.sub(r"(rtx|gtx)(\d{4})(ti)?", r"\1 \2 \3", re.sub(r"[^a-z0-9]+", " ", kind.lower()))
    architecture = architectures.of_name(spaced)
    size = int(float(given_gb or least_gb) * 1e3) << 20  # a card of 16 GB shows about 16 000 MiB
    return Card(name=kind, bytes=size, capability=str(architecture.compute) if architecture else "")
