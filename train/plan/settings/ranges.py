"""The ranges of a sweep, from text: learning_rate=1e-5..1e-3:log lora_r=8,16,32. Pure.

NAME=LOW..HIGH        any number between them, whole where the setting is
NAME=LOW..HIGH:log    the same, each order of size as likely as the others
NAME=A,B,C            one of these; of a setting whose values have commas themselves: NAME=A|B|C
"""

from __future__ import annotations

import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass
from typing import Any

from train.errors import BadInput
from train.plan.values import Settings, coerce, nearest

EXAMPLE = "for example: learning_rate=1e-5..1e-3:log lora_r=8,16,32"
DIGITS = 3
"""Digits of a number that is tried: more of them mean nothing, and are hard to read."""
WITH_COMMAS = ("lora_targets", "rewards", "shares", "speeds", "pipes", "dataset", "nodes")
"""Settings of which one value may have commas."""
LOG = ":log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.low, self.high

    @property
    def words(self) -> str:
        return f"{self.name} {self.low:g} to {self.high:g}"

    def near(self, value: float) -> float:
        """The value that is tried in place of one that was drawn."""
        if self.whole:
            return round(value)
        return min(max(float(f"{value:.{DIGITS}g}"), self.low), self.high)

    def share(self, value: float) -> float:
        """The position of a value between the ends: 0 to 1."""
        low, high, at = (math.log(x) if self.log else x for x in (self.low, self.high, value))
        return (at - low) / (high - low)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    name: str
    values: tuple[Any, ...]

    @property
    def ends(self) -> tuple[Any, ...]:
        return self.values

    @property
    def words(self) -> str:
        return f"{self.name} {' or '.join(map(str, self.values))}"

    def share(self, value: Any) -> float:
        return self.values.index(value) / (len(self.values) - 1)


Searched = Range | Choice


def is_search(name: str, text: str) -> bool:
    """Whether this names several values of the setting, and not one."""
    is_range = ".." in text and "/" not in text  # else it is a path
    return is_range or "|" in text or ("," in text and name not in WITH_COMMAS)


def parse(text: str, known: Mapping[str, Field[Any]], closed: Mapping[str, str]) -> list[Searched]:
    """The ranges in the order of the text; BadInput where a word is no range. `known`: the settings of what is trained;
    `closed`: those that a sweep cannot change, and why."""
    try:
        words = shlex.split(text)
    except ValueError as why:
        raise BadInput(f"search: {text!r}: {why}", fix=EXAMPLE) from None
    pairs = [word.partition("=") for word in words]
    if not pairs:
        raise BadInput("search: it names no setting to try", fix=EXAMPLE)
    searched: list[Searched] = []
    for (name, is_pair, listed), word in zip(pairs, words, strict=True):
        if not (name and is_pair and listed):
            raise BadInput(f"search: '{word}' is not NAME=LOW..HIGH or NAME=VALUE,VALUE", fix=EXAMPLE)
        if name in (earlier.name for earlier in searched):
            raise BadInput(f"search: {name} is named twice", fix="keep one of the two")
        if name in closed:
            raise BadInput(f"search: {name} cannot be tried in one sweep: {closed[name]}", fix="one sweep for each")
        if name not in known:
            raise BadInput(f"search: there is no setting '{name}'{nearest(name, known)}", fix="see: docs/reference.md")
        searched.append(_range(known[name], listed) if ".." in listed else _choice(known[name], listed))
    return searched


def _range(spec: Field[Any], text: str) -> Range:
    log = text.endswith(LOG)
    ends = text.removesuffix(LOG).split("..")
    kind = str(spec.type).removesuffix(" | None")
    if kind not in ("int", "float", "int | float"):
        fix = f"list its values: {spec.name}=A|B" if spec.name in WITH_COMMAS else f"list its values: {spec.name}=A,B"
        raise BadInput(f"search: {spec.name} is no number, and '{text}' is a range", fix=fix)
    if len(ends) != 2 or ":" in ends[1] or "..." in text:
        raise BadInput(f"search: {spec.name}: '{text}' is not LOW..HIGH or LOW..HIGH:log", fix=EXAMPLE)
    low, high = (coerce(spec, end) for end in ends)
    if low is None or high is None:  # as nothing and `none` are read, where the setting may be unset
        raise BadInput(f"search: {spec.name}: '{text}' has an end without a number", fix=EXAMPLE)
    if low >= high:
        raise BadInput(f"search: {spec.name}: {ends[0]} is not below {ends[1]}", fix=EXAMPLE)
    if log and low <= 0:
        raise BadInput(f"search: {spec.name}: a range with :log begins above 0", fix="another low end, or without :log")
    whole = kind == "int" or (kind == "int | float" and all(isinstance(end, int) for end in (low, high)))
    return Range(name=spec.name, low=low, high=high, log=log, whole=whole)


def _choice(spec: Field[Any], text: str) -> Choice:
    several = "|" in text or spec.name in WITH_COMMAS
    values = tuple(coerce(spec, value.strip()) for value in text.split("|" if several else ",") if value.strip())
    if len(values) < 2 or len(set(values)) < len(values):
        what = "is one value" if len(values) < 2 else "names a value twice"
        raise BadInput(f"search: {spec.name}: '{text}' {what}", fix="name different ones, or set it beside the search")
    return Choice(name=spec.name, values=values)


def combinations(searched: Sequence[Searched]) -> list[Settings]:
    """Every combination of what is listed; the last name changes fastest."""
    listed = [choice.values for choice in searched if isinstance(choice, Choice)]
    assert len(listed) == len(searched)
    names = [choice.name for choice in searched]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*listed)]


def count(searched: Sequence[Searched]) -> int:
    """How many combinations there are; 0 where a range has no end of them."""
    numbers = [len(choice.values) if isinstance(choice, Choice) else 0 for choice in searched]
    return math.prod(numbers)
