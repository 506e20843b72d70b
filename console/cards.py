"""Which NVIDIA generation a card's name means, and whether the pinned torch carries code for it."""

from __future__ import annotations

import re

# Architectures in PyPI's torch 2.13.0 wheel; a card also runs code for an older minor of its own major (8.9 runs 8.6).
SERVED = (7.5, 8.0, 8.6, 9.0, 10.0, 12.0)

# First match wins; the name is searched in lower case.
GENERATIONS = (
    (r"\b(radeon|rx ?\d{3,4}|instinct|mi\d{2,3}x?|arc|iris|uhd)\b", "not NVIDIA", 0.0),
    (r"\brtx ?50\d0|rtx pro \d{4} blackwell", "Blackwell", 12.0),
    (r"\b(b100|b200|gb200)\b", "Blackwell", 10.0),
    (r"\b(h100|h200|gh200)\b", "Hopper", 9.0),
    (r"\brtx ?40\d0|\bl40s?\b|\bl4\b|rtx \d{4} ada", "Ada", 8.9),
    (r"\brtx ?30\d0|\brtx ?a\d{4}|\ba(10|16|40)\b", "Ampere", 8.6),
    (r"\b(a100|a30)\b", "Ampere", 8.0),
    (r"\brtx ?20\d0|\bgtx ?16\d0|\bt4\b|titan rtx|quadro rtx", "Turing", 7.5),
    (r"\bv100\b|titan v\b", "Volta", 7.0),
    (r"\bgtx ?10\d0|\bp100\b|\bp40\b|\bp4\b|titan xp?\b", "Pascal", 6.1),
    (r"\bgtx ?(9\d0|7\d0|750)|\bm40\b|\bk80\b", "older than Pascal", 5.2),
)


def generation(card: str) -> tuple[str, float] | None:
    """Name and compute capability; None where the name says nothing to us."""
    for pattern, name, capability in GENERATIONS:
        if re.search(pattern, card.lower()):
            return name, capability
    return None


def unserved(card: str) -> str:
    """Why the pinned torch cannot use this card; empty when it can, or when only the machine itself can tell."""
    found = generation(card)
    if found is None:
        return ""
    name, capability = found
    if any(int(capability) == int(served) and served <= capability for served in SERVED):
        return ""
    if capability == 0:
        return "is no NVIDIA card; Motley trains through CUDA"
    return f"is {name} (compute {capability}); torch 2.13 has code for {SERVED[0]} and newer"
