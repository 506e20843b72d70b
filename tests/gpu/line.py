"""What a line of the kit is: a name, what it needs, what it measures, and a judge of what was measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any, NamedTuple

UNSLOTH_S = 180.0
"""Its import alone takes half a minute on a disk that is cold, and its kernels are compiled once for each card."""
TRAINS = ("transformers and peft",)
Figures = dict[str, Any]
"""What was measured, ready for JSON; all that a judge sees."""


class Verdict(NamedTuple):
    passed: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a line measures."""

    device: str
    """cpu, or cuda:0."""
    folder: Path
    """Its own, empty, gone afterwards."""
    shared: Path
    """Of all lines of this code and machine: what one has made and others use."""
    results: Path
    pair: tuple[str, ...] = ()
    inventory: str = ""
    model: str = ""
    """Of the lines of a pair, where it is not the usual one."""

    @classmethod
    def read(cls, file: Path) -> Place:
        given = json.loads(file.read_text())
        folders = {name: Path(given[name]) for name in ("folder", "shared", "results")}
        return cls(**given | folders | {"pair": tuple(given["pair"])})

    @property
    def on_card(self) -> bool:
        return self.device != "cpu"


@dataclass(frozen=True)
class Line:
    name: str
    about: str
    measure: Callable[[Place], Figures]
    judge: Callable[[Figures], Verdict]
    """Pure."""
    _: KW_ONLY
    needs: tuple[str, ...] = TRAINS
    """Words of machine.NEEDS."""
    simulated: bool = False
    """No CPU can do it: with DEVICE=cpu its judge is shown recorded figures."""
    limit_s: float = 60


def together(*parts: tuple[bool, str]) -> Verdict:
    """All parts must hold; those that do not are said first and alone."""
    wrong = [sentence for good, sentence in parts if not good]
    return Verdict(not wrong, "; ".join(wrong or [sentence for _, sentence in parts]))


def told(good: bool, right: str, wrong: str) -> tuple[bool, str]:
    """A part of a verdict, in words for either case."""
    return good, right if good else wrong


def off(found: float, wanted: float) -> float:
    """Relative; anything that is not a number is infinitely far off."""
    error = abs(found - wanted) / max(abs(wanted), 1e-30)
    return error if math.isfinite(error) else math.inf


def furthest(found: Sequence[float], wanted: Sequence[float]) -> float:
    if len(found) != len(wanted) or not wanted:
        return math.inf
    return max(off(a, b) for a, b in zip(found, wanted, strict=True))


def within(what: str, error: float, limit: float) -> tuple[bool, str]:
    return error <= limit, f"{what} {error:.1e} (at most {limit:.0e})"
