"""What may name a run. The name is a folder on every node and here, a line of a script and a word of a command, so one
pattern decides for all of them; a newline, a slash or a leading dot is in none.
"""

from __future__ import annotations

import re

from train.errors import BadInput

PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
RULE = "letters, digits, dots, dashes and underscores, the first a letter or digit, at most 100"


def is_name(text: object) -> bool:
    return isinstance(text, str) and PATTERN.fullmatch(text) is not None


def check_name(what: str, text: str) -> None:
    if not is_name(text):
        raise BadInput(f"{what}: {text!r} cannot name a run", fix=f"use {RULE}")


def as_name(text: str) -> str:
    """The nearest name: what else stands in it becomes a dash."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")[:80].rstrip("-.") or "unnamed"
