"""The commands in messages as this person would type them: with the --inventory or --infra that was typed."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from console.command_line.verbs import VERBS

NAMES = ("inventory", "infra")
VARIABLE = "MOTLEY_TYPED"
"""In the environment: the playbook that a verb runs says its commands alike."""
VERB = "|".join(name for name, verb in VERBS.items() if {*NAMES} <= {option.name for option in verb.options})
COMMAND = re.compile(rf"\./motley (?:{VERB})\b(?!-)(?!(?: --?[\w-]+(?:[ =][^\s-]\S*)?)* --(?:{'|'.join(NAMES)})\b)")


@contextmanager
def for_one_verb() -> Iterator[None]:
    """What is remembered while a verb is at work is forgotten behind it."""
    before = os.environ.get(VARIABLE, "")
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        if before:
            os.environ[VARIABLE] = before


def remember(typed: Mapping[str, str]) -> None:
    words = [word for name in NAMES if typed.get(name) for word in (f"--{name}", typed[name])]
    os.environ[VARIABLE] = shlex.join(words)


def given() -> dict[str, str]:
    """What is remembered, as `remember` takes it."""
    words = iter(shlex.split(os.environ.get(VARIABLE, "")))
    return {name.removeprefix("--"): value for name, value in zip(words, words, strict=True)}


def as_typed(text: str) -> str:
    words = os.environ.get(VARIABLE, "")
    if not words or {'"', "\\"} & {*words}:  # in the text of JSON these would be others
        return text
    return COMMAND.sub(lambda found: f"{found[0]} {words}", text)


def inventory() -> str:
    """The folder that was typed, or the usual one."""
    return given().get("inventory", "inventory/homelab")
