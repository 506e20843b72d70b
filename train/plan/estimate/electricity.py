"""What a run draws and costs; None for what is not known or not set. console/electricity.py counts it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Electricity:
    """The power and the price of an hour."""

    kwh_price: float | None = None
    currency: str = ""
    idle_watts: Mapping[str, float | None]
    """Each node's, beside its GPUs."""
    gpu_watts: Mapping[str, float | None]
    watts: float | None = None
    per_hour: float | None = None
    covers: str | None = None
    """What of all nodes is counted, in words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunElectricity(Electricity):
    seconds: float | None = None
    cost: float | None = None
    bound: str | None = None
    """up to, about or at least, as far as every GPU's limit is known."""
