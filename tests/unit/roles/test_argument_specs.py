"""What `ansible-doc -t role` shows is what a role takes: its true defaults, and all that it reads of others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from jinja2 import Environment, nodes

from console.inventory.keys import SECRETS, role_keys
from tests.support.role_pages import NAMES, ROLES, page

CONDITIONS = ("when", "that", "until", "changed_when", "failed_when")


def options_of(role: str) -> dict[str, Any]:
    entries = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())["argument_specs"]
    return {name: option for entry in entries.values() for name, option in entry.get("options", {}).items()}


@pytest.mark.parametrize("role", NAMES)
def test_its_defaults_are_those_that_are_shown(role: str) -> None:
    """One that is computed is told in words: Ansible would compute it each time that it looks at the others."""
    file = ROLES / role / "defaults/main.yml"
    defaults = dict(yaml.safe_load(file.read_text())) if file.exists() else {}
    options = options_of(role)
    computed = {name for name, value in defaults.items() if "{{" in str(value)}
    told = {name for name, option in options.items() if "by default" in option["description"]}
    shown = {name: option["default"] for name, option in options.items() if "default" in option}
    assert computed <= told and shown == {name: value for name, value in defaults.items() if name not in computed}
    assert not [name for name in shown if options[name].get("required")]


@pytest.mark.parametrize("role", NAMES)
def test_its_page_is_current(role: str) -> None:
    file = ROLES / role / "README.md"
    assert file.exists() and file.read_text() == page(role), "python -m tests.support.role_pages"


@pytest.mark.filterwarnings("ignore:invalid escape")  # Jinja's, of a pattern
@pytest.mark.parametrize("role", NAMES)
def test_what_it_reads_of_others_is_declared_or_comes_from_a_role_that_it_includes(role: str) -> None:
    ours = tuple(f"{under}{name}_" for name in included(role) for under in ("", "__"))
    foreign = {name for name in reads(role) if not name.startswith(ours)}
    assert foreign <= {*options_of(role), *SECRETS}


def test_what_a_role_finds_is_no_key_of_an_inventory() -> None:
    found = {"motley_request_checked", "motley_plan_look", "motley_plan_decided"}
    assert found <= {name for role in NAMES for name in options_of(role)} and not found & set(role_keys(ROLES))


def included(role: str) -> set[str]:
    """Itself, what it includes, and what these include."""
    here = {name for name in texts(role, "name") if name in NAMES}
    return {role}.union(*(included(name) for name in here))


def reads(role: str) -> set[str]:
    """The variables of Motley's that its tasks, variables and templates name."""
    templates = [path.read_text() for path in (ROLES / role / "templates").glob("*")]
    conditions = (f"{{{{ {text} }}}}" for text in texts(role, *CONDITIONS))
    found: set[str] = set()
    for text in (*texts(role), *conditions, *templates):
        named = Environment(autoescape=True).parse(text).find_all(nodes.Name)
        found |= {name.name for name in named if re.match("(__)?motley_", name.name)}
    return found


def texts(role: str, *keys: str) -> Iterator[str]:
    """All of its YAML files, or those that stand at these keys."""
    for folder in ("tasks", "vars", "defaults"):
        for file in (ROLES / role / folder).glob("*.yml"):
            yield from within(yaml.safe_load(file.read_text()), not keys, keys)


def within(value: Any, wanted: bool, keys: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from within(inner, wanted or key in keys, keys)
    elif isinstance(value, list):
        for inner in value:
            yield from within(inner, wanted, keys)
    elif wanted and isinstance(value, str):
        yield value
