"""The commands within messages, in the form in which Motley was called: as `make VERB NAME=…` they are written."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from console.verbs import VERBS, Option
from train.safe_stdio import draw

FORM = "MOTLEY_HINTS"
"""The variable that is set where messages shall name ./motley."""
VALUE = r"""(?:"[^"]*"|'[^']*'|[^\s"']*[^\s"'.,;:)\]])"""
COMMAND = re.compile(rf"\bmake ({'|'.join(VERBS)})\b(?!-)((?: [A-Z_]+={VALUE})*)")
SETTING = re.compile(rf"(?<![\w/-])([A-Z_]+)=({VALUE})")


def in_form(text: str, verb: str = "") -> str:
    """`verb`: what is running, whose options may be named without a command."""
    if not os.environ.get(FORM):
        return text
    text = COMMAND.sub(lambda found: f"./motley {found[1]}{_options(found[2], found[1])}", text)
    return _options(text, verb) if verb in VERBS else text


def _options(text: str, verb: str) -> str:
    known = {name: option for option in VERBS[verb].options for name in option.variables}
    return SETTING.sub(lambda found: _option(known[found[1]], found[2]) if found[1] in known else found[0], text)


def _option(option: Option, value: str) -> str:
    flag = option.flags[0]
    if not option.value:
        return flag
    if option.name == "set" and value[0] in "\"'":
        return " ".join(f"{flag} {shlex.quote(word)}" for word in shlex.split(value[1:-1]))
    return f"{flag} {value}"


class Translating:
    """A stream of messages."""

    def __init__(self, stream: Any, verb: str) -> None:
        self.stream, self.verb = stream, verb

    def write(self, text: str) -> int:
        self.stream.write(in_form(text, self.verb))
        return len(text)

    def draw(self, text: str) -> None:
        draw(in_form(text, self.verb), self.stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def as_it_is(stream: Any) -> Any:
    """For what others have written: a node's output, data for a program."""
    return stream.stream if isinstance(stream, Translating) else stream


@contextmanager
def translated(verb: str = "", *, data: bool = False) -> Iterator[None]:
    """`data`: stdout is for a program."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (Translating(stream, verb) for stream in before)
    if data:
        sys.stdout = before[0]
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
