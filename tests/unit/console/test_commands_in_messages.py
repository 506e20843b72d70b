"""A message that names a command of ours names one that can be typed."""

import re
from pathlib import Path

import pytest

from console.verbs import VERBS

REPOSITORY = Path(__file__).resolve().parents[3]
SOURCES = [
    file
    for folder in ("console", "inventory", "lab", "playbooks", "plugins", "roles", "templates", "train")
    for file in sorted((REPOSITORY / folder).rglob("*"))
    if file.suffix in (".py", ".yml", ".j2", ".sh") and file.is_file()
]
COMMAND = re.compile(r"\./motley ([a-z][a-z-]*)((?: --[a-z-]+(?:[ =][^\s-][^\s;,()`\"']*)?)*)")
VARIABLES = {name for verb in VERBS.values() for option in verb.options for name in option.variables}
SETTING = re.compile(rf"(?<![\w${{-])({'|'.join(sorted(VARIABLES, key=len, reverse=True))})=[^\s\"'=]+")
SAID = {"help", "completion", "has", "itself", "says"}  # the last three: of ./motley itself
OF_MAKE = re.compile(rf"\bmake ({'|'.join(sorted(VERBS, key=len, reverse=True))})\b(?!-)")


def wrong_commands(text: str) -> list[str]:
    wrong = [found[0] for found in [*OF_MAKE.finditer(text), *SETTING.finditer(text)]]
    for verb, words in COMMAND.findall(text):
        flags = {flag for option in VERBS[verb].options for flag in option.flags} if verb in VERBS else set()
        flags |= {"--help"}
        wrong += [f"{verb} {flag}" for flag in re.findall(r"--[a-z-]+", words) if flag not in flags]
        wrong += [verb] if verb not in {*VERBS, *SAID} else []
    return wrong


@pytest.mark.parametrize(
    "text", ["make stop", "VAULT=ask", "./motley stopp", "./motley bootstrap --phase run --limt a"]
)
def test_what_nobody_can_type_is_found(text: str) -> None:
    assert wrong_commands(f"fix: {text}, then again")


@pytest.mark.parametrize("text", ["make room", "make lab-down", "./motley bootstrap --phase run --nodes a,b (again)"])
def test_what_is_right_is_left_alone(text: str) -> None:
    assert not wrong_commands(f"fix: {text}, then again")


def test_every_message_names_a_command_that_can_be_typed() -> None:
    found = {str(file.relative_to(REPOSITORY)): wrong for file in SOURCES if (wrong := wrong_commands(read(file)))}
    assert not found, found


def read(file: Path) -> str:
    return file.read_text(encoding="utf-8")
