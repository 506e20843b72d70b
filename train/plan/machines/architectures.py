"""NVIDIA's GPU architectures: what a name or a chip on the PCI bus means, and what torch and driver make of it.

One table for the inventory's check, the choice of a driver and the plan of a run. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

# Architectures in PyPI's torch 2.13.0 wheel; a GPU also runs code for an older minor of its own major (8.9 runs 8.6).
SERVED = (7.5, 8.0, 8.6, 9.0, 10.0, 12.0)
BF16_SINCE = 8.0
"""Before that torch only emulates it."""


@dataclass(frozen=True, slots=True)
class Architecture:
    name: str
    sold_as: str
    compute: float
    chips: str
    """First and last PCI device id of its chips, from NVIDIA's lists of supported products."""
    pattern: str
    """A regular expression for what people call such a GPU, in lower case."""

    @property
    def title(self) -> str:
        return f"{self.sold_as} ({self.name})" if self.sold_as else self.name

    @property
    def served(self) -> bool:
        return any(int(self.compute) == int(served) and served <= self.compute for served in SERVED)

    @property
    def needs_open(self) -> bool:
        """Whether it works with the driver's open kernel modules alone; all others that are served take either."""
        return self.compute >= 10.0

    @property
    def least_driver(self) -> str:
        return "570.86.16" if self.compute >= 10.0 else ""


NOT_NVIDIA = Architecture("not NVIDIA", "", 0.0, "", r"\b(radeon|rx ?\d{3,4}|instinct|mi\d{2,3}x?|arc|iris|uhd)\b")
# Of the patterns the first that matches decides. An RTX 5090 is of another architecture than an RTX 5000, which is one
# for workstations, of Turing (Quadro) or Ada.
KNOWN = (
    NOT_NVIDIA,
    Architecture("Blackwell", "RTX 50", 12.0, "2b80-2dff 2f00-2f7f", r"\brtx ?50[5-9]0|rtx pro \d{4} blackwell"),
    Architecture("Blackwell", "", 10.0, "2900-29ff 3180-31ff", r"\b(b100|b200|gb200)\b"),
    Architecture("Hopper", "", 9.0, "2300-237f", r"\b(h100|h200|gh200)\b"),
    Architecture("Ada", "RTX 40", 8.9, "2680-28ff", r"\brtx ?40[5-9]0|\bl40s?\b|\bl4\b|rtx \d{4} (sff )?ada"),
    Architecture("Ampere", "RTX 30", 8.6, "2200-227f 2400-25ff", r"\brtx ?30[5-9]0|\brtx ?a\d{4}|\ba(10|16|40)\b"),
    Architecture("Ampere", "A100", 8.0, "2080-20ff", r"\b(a100|a30)\b"),
    Architecture(
        *("Turing", "RTX 20 or GTX 16", 7.5, "1e00-1fff 2180-21ff"),
        r"\brtx ?20\d0|\bgtx ?16\d0|\bt4\b|titan rtx|quadro rtx",
    ),
    Architecture("Volta", "", 7.0, "1d80-1dff", r"\bv100\b|titan v\b"),
    Architecture("Pascal", "GTX 10", 6.1, "1580-15ff 1b00-1d7f", r"\bgtx ?10\d0|\bp100\b|\bp40\b|\bp4\b|titan xp?\b"),
    Architecture(
        "Maxwell or older", "GTX 900 or older", 5.2, "0000-157f 1600-1aff", r"\bgtx ?(9\d0|7\d0|750)|\bm40\b|\bk80\b"
    ),
)


def of_name(gpu: str) -> Architecture | None:
    """The architecture by a GPU's name; None where the name says nothing to us."""
    return next((known for known in KNOWN if re.search(known.pattern, gpu.lower())), None)


def of_chip(device: str) -> Architecture:
    """The architecture by the chip's PCI id. An id unknown when this was written is of a newer GPU than all known."""
    for known in KNOWN:
        for first, _, last in (span.partition("-") for span in known.chips.split()):
            if int(first, 16) <= int(device, 16) <= int(last, 16):
                return known
    return replace(max(KNOWN, key=lambda known: known.compute), name="unknown", sold_as="")


def unserved(gpu: str) -> str:
    """Why the pinned torch cannot use a GPU of this name; empty when it can, or when only the machine itself knows."""
    found = of_name(gpu)
    if found is None or found.served:
        return ""
    if found == NOT_NVIDIA:
        return "is no NVIDIA card; Motley trains through CUDA"
    return f"is {found.name} (compute {found.compute}); torch 2.13 has code for {SERVED[0]} and newer"
