"""The rewards that Motley has, in the form that those of an owner have: one number for each answer."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

Function = Callable[..., list[float]]
NUMBER = re.compile(r"(?:(?<![\w)\].])[-−])?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?")
"""A number: with a sign where it is one and no minus between two numbers, and commas only between thousands."""


def function_of(kind: str, argument: str) -> Function:
    if kind == "format":
        return matches(re.compile(argument, re.DOTALL))
    if kind == "length":
        return at_most(int(argument))
    plain: dict[str, Function] = {"exact": exact, "number": number, "json": parses}
    return plain[kind]


def text_of(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """What was answered: of a chat its last message, whose content may stand in parts."""
    if isinstance(completion, str):
        return completion
    content = completion[-1].get("content") if completion else ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content or "")


def exact(completions: list[Any], answer: list[Any], **_: Any) -> list[float]:
    """1 where the trimmed answer is the row's."""
    return [float(text_of(c).strip() == str(a).strip()) for c, a in zip(completions, answer, strict=True)]


def number(completions: list[Any], answer: list[Any], **_: Any) -> list[float]:
    """1 where the answer's last number is that of the row's: 1,200 is 1200.0."""
    given = [last_number(str(a)) for a in answer]
    if None in given:
        raise ValueError(f"the column answer has {str(answer[given.index(None)])!r}, where there is no number")
    return [float(last_number(text_of(c)) == g) for c, g in zip(completions, given, strict=True)]


def last_number(text: str) -> Decimal | None:
    found = NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "").replace("−", "-")) if found else None


def parses(completions: list[Any], **_: Any) -> list[float]:
    """1 where the trimmed answer is one JSON object or list."""
    return [float(is_json(text_of(completion))) for completion in completions]


def is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text, parse_constant=no_json), (dict, list))
    except (ValueError, RecursionError):
        return False


def no_json(constant: str) -> None:
    raise ValueError(f"{constant} is Python's, not JSON's")


def matches(pattern: re.Pattern[str]) -> Function:
    """1 where all of the trimmed answer matches; the point stands for a new line too."""

    def format(completions: list[Any], **_: Any) -> list[float]:
        return [float(pattern.fullmatch(text_of(completion).strip()) is not None) for completion in completions]

    return format


def at_most(words: int) -> Function:
    """1 up to so many words, then less the longer it is: half at twice as many. An empty answer has no worth."""

    def length(completions: list[Any], **_: Any) -> list[float]:
        counts = [len(text_of(completion).split()) for completion in completions]
        return [min(1.0, words / count) if count else 0.0 for count in counts]

    return length
