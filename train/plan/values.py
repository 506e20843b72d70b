"""A value from YAML, flags or `-e` as the type that a setting has."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import Field
from typing import Any, TypeAlias

from train.errors import BadInput
from train.nearest_word import meant

Settings: TypeAlias = dict[str, Any]
"""Settings of a run by name; its recipe says which there are."""
MAY_BE_OFF = ("pipes", "prune")
"""Settings that are a word, and may be `off`: which YAML reads as false where nobody quotes it."""
NO_VALUE = (ValueError, AttributeError, LookupError, RecursionError)
"""What PyYAML raises beside its own errors: for what looks like a date and is none, `!!int x`, and 2000 `[`."""
MOST = 1e15
"""No setting is larger: rows, steps and weights are computed from it."""


def coerce(spec: Field[Any], value: Any) -> Any:
    """A value from YAML or the command line as the field's type."""
    if value is None or (value in ("", "none", "null") and spec.default is None):
        if spec.default is not None:
            raise BadInput(f"{spec.name}: a value is missing")
        return None
    if value is False and spec.name in MAY_BE_OFF:
        return "off"
    read, noun = _READERS[str(spec.type).removesuffix(" | None")]
    try:
        return read(value)
    except OverflowError:
        raise BadInput(f"{spec.name}: {str(value)[:20]} is too large a number") from None
    except (TypeError, ValueError, KeyError):
        raise BadInput(f"{spec.name}: '{value}' is not {noun}") from None


def nearest(word: str, known: Any) -> str:
    """`, did you mean 'x'?` or nothing."""
    close = meant(word, known)
    return f", did you mean '{close}'?" if close else ""


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not math.isfinite(number := float(value)):
        raise ValueError
    if abs(number) > MOST:
        raise OverflowError
    return number


def _integer(value: Any) -> int:
    if (number := _finite(value)) != int(number):
        raise ValueError
    return int(number)


def _number(value: Any) -> int | float:
    """A number as an integer where it is one: 16, not 16.0."""
    number = _finite(value)
    return int(number) if number == int(number) else number


def _boolean(value: Any) -> bool:
    return {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}[
        str(value).lower()
    ]


def _word(value: Any) -> str:
    if isinstance(value, dict):
        return ",".join(f"{name}={item}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(str(item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _numbers(value: Any) -> tuple[float, ...]:
    items = value.strip("[]").split(",") if isinstance(value, str) else value
    return tuple(_finite(item) for item in items)


_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "int": (_integer, "a whole number"),
    "float": (_finite, "a number"),
    "int | float": (_number, "a number"),
    "bool": (_boolean, "true or false"),
    "str": (_word, "a word"),
    "tuple[float, ...]": (_numbers, "a list of numbers"),
}
