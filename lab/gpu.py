"""Simulated graphics cards: what a host's hardware answers, kept outside the host and changeable from there."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import yaml

from lab.profile import HostSpec
from lab.shell import LabError

CARDS = Path(__file__).parent / "hardware" / "cards.yml"


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    title: str
    """As a person writes it into the inventory."""
    name: str
    """As nvidia-smi prints it."""
    pci_id: str
    memory_mib: int
    compute_capability: str
    power_limit_w: int
    needs_open_modules: bool = False


NO_CARD = Card(title="none", name="", pci_id="", memory_mib=0, compute_capability="", power_limit_w=0)


@cache
def cards() -> dict[str, Card]:
    return {name: Card(**facts) for name, facts in yaml.safe_load(CARDS.read_text()).items()}


def card(spec: HostSpec) -> Card:
    if spec.card == "none":
        return NO_CARD
    if spec.card not in cards():
        raise LabError(f"{spec.name}: no simulated card '{spec.card}'; there are: {', '.join(cards())}", code=2)
    return cards()[spec.card]


def plug_in(hardware: Path, spec: HostSpec) -> None:
    hardware.mkdir(parents=True, exist_ok=True)
