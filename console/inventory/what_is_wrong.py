"""One thing that is wrong with an inventory, and the sentence that corrects a word."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from train.nearest_word import meant


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is wrong, where it stands, and the edit that fixes it."""

    what: str
    where: str
    fix: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}\n    {self.fix}"


def nearest(name: str, known: Any, *, otherwise: str = "all keys: docs/reference.md") -> str:
    """The sentence that names the valid key or word nearest to a misspelled one."""
    close = meant(name, known) or next((key for key in known if key.endswith("_" + name)), "")  # motley_address
    return f"did you mean '{close}'?" if close else otherwise


def unknown(what: str, word: str, all_of: str, known: Iterable[str]) -> str:
    close = nearest(word, known, otherwise="")
    return "\n  ".join([f"there is no {what}", *([close] if close else []), f"{all_of}: {', '.join(known)}"])
