"""`-e motley_firewall_manage=false` is a text. Whatever a role declares as a boolean or a number acts the same as text.

Every condition and every expression of roles and playbooks that names such a variable is computed twice, with the value
and with its text, all other names standing for something true and then for something false: the results must be alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import jinja2.meta
import pytest
import yaml
from ansible.plugins.filter.core import FilterModule as Core
from jinja2.nativetypes import NativeEnvironment

from plugins.action import doctor_judge
from tests.support import ROOT

OF_ROLES = [path for path in ROOT.glob("roles/*/*/*.yml") if path.parent.name != "meta"]
FILES = [*OF_ROLES, *ROOT.glob("playbooks/[a-z]*.yml")]
CONDITIONS = ("when", "that", "until", "changed_when", "failed_when")
SAMPLES: dict[str, tuple[Any, ...]] = {"bool": (False, True), "int": (7,), "float": (7.5,)}
KEEP = {name: function for name, function in Core().filters().items() if name == "bool"}
"""Filters that are themselves here, besides Jinja's own; any other hands on what it gets."""


class Something(jinja2.Undefined):
    """What any other name stands for: it has every attribute, and is as true as the round says."""

    truth = True

    def _same(self, *_: Any, **__: Any) -> Any:
        return self

    __getattr__ = __getitem__ = __call__ = __sub__ = __rsub__ = __mul__ = __abs__ = _same  # type: ignore[assignment]
    __truediv__ = __rtruediv__ = __mod__ = __neg__ = _same  # type: ignore[assignment]

    def _other(self, other: Any) -> Any:
        return other

    __add__ = __radd__ = _other  # type: ignore[assignment]

    def _true(self, *_: Any) -> bool:
        return self.truth

    __bool__ = __eq__ = __ne__ = __contains__ = _true  # type: ignore[assignment]

    def _compared(self, other: Any) -> bool:
        known = isinstance(other, (int, float, Something))
        return self.truth if known else bool(other < 0)  # as Python: no text with a number

    __lt__ = __le__ = __gt__ = __ge__ = _compared  # type: ignore[assignment]

    def __hash__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[Any]:
        return iter([])

    def __len__(self) -> int:
        return int(self.truth)

    def __str__(self) -> str:
        return "something"

    __int__ = __float__ = __len__  # type: ignore[assignment]


class Named(dict[str, Callable[..., Any]]):
    """Filters or tests: those that are not known hand on their first argument."""

    def __contains__(self, _: object) -> bool:
        return True

    def __missing__(self, _: str) -> Callable[..., Any]:
        return lambda value, *_, **__: value

    def get(self, name: str, default: Any = None) -> Callable[..., Any]:
        return self[name]


def language() -> NativeEnvironment:
    language = NativeEnvironment(undefined=Something)
    language.filters = Named(language.filters | KEEP)
    language.tests = Named(language.tests)
    return language


LANGUAGE = language()
template = cache(LANGUAGE.from_string)


def declared() -> dict[str, str]:
    """Each variable that is a boolean or a number, and which."""
    found = {"motley_manage_host": "bool"}
    for file in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for spec in yaml.safe_load(file.read_text())["argument_specs"].values():
            options = spec.get("options") or {}
            found |= {name: option["type"] for name, option in options.items() if option.get("type") in SAMPLES}
    return found


def expressions(file: Path) -> Iterator[tuple[str, str]]:
    """Where in it, and the expression; but not the values of own modules' options that have a type themselves."""

    def below(value: Any, key: str, typed: dict[str, str]) -> Iterator[tuple[str, str]]:
        if isinstance(value, dict):
            for name, inner in value.items():
                options = {f"{name}.{option}": kind for option, kind in options_of(name).items()}
                yield from below(inner, f"{key}.{name}" if f"{key}.{name}" in typed else str(name), typed | options)
        elif isinstance(value, list):
            for inner in value:
                yield from below(inner, key, typed)
        elif isinstance(value, str):
            if key in CONDITIONS:
                yield key, f"{{{{ {value} }}}}"
            elif "{" in value and not (key in typed and re.fullmatch(r"{{ \w+ }}", value)):
                yield key, value

    yield from below(yaml.safe_load(file.read_text()), "", {})


@cache
def options_of(module: str) -> dict[str, str]:
    file = ROOT / f"plugins/modules/{module}.py"
    text = re.search(r'DOCUMENTATION = r"""(.*?)"""', file.read_text(), re.DOTALL) if file.exists() else None
    options = (yaml.safe_load(text[1]).get("options") or {}) if text else {}
    return {name: option.get("type", "str") for name, option in options.items() if option.get("type") in SAMPLES}


def outcome(text: str, values: dict[str, Any]) -> str:
    try:
        result = template(text).render(**values)
    except Exception as trouble:
        return type(trouble).__name__
    return f"{type(result).__name__} {result}"


def acts_otherwise(expression: str, name: str, samples: tuple[Any, ...]) -> bool:
    for Something.truth in (True, False):
        for value in samples:
            as_text = str(value).lower()
            if outcome(expression, {name: value}) != outcome(expression, {name: as_text}):
                return True
    return False


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_what_is_said_with_e_acts_as_in_hosts_yml() -> None:
    kinds, wrong, tried = declared(), [], 0
    for file in FILES:
        for key, expression in expressions(file):
            for name in sorted(jinja2.meta.find_undeclared_variables(LANGUAGE.parse(expression)) & kinds.keys()):
                tried += 1
                if acts_otherwise(expression, name, SAMPLES[kinds[name]]):
                    wrong.append(f"{file.relative_to(ROOT)}: {key}: {expression}")
    assert tried > 40
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_doctor_takes_texts_for_what_they_say() -> None:
    values = {"motley_address": "10.0.0.1", "motley_manage_host": "false"}
    values |= {"motley_firewall_manage": "false", "motley_gpu_driver_manage": "no"}
    node = doctor_judge.node_of("one", {"one": values})
    assert (node.managed, node.expected["firewall"], node.expected["gpu_driver"]) == (False, False, False)


@pytest.mark.parametrize(
    ("expression", "otherwise"),
    [
        ("v", True),
        ("not v", True),
        ("v | bool", False),
        ("other and v | bool", False),
        ("'a' if v else 'b'", True),
        ("v | default(true)", True),
        ("v | default(true) | bool", False),
        ("other | some_filter(v)", False),
    ],
)
def test_this_test_sees_what_it_shall_see(expression: str, otherwise: bool) -> None:
    assert acts_otherwise(f"{{{{ {expression} }}}}", "v", (False, True)) is otherwise
    assert acts_otherwise("{{ other <= v }}", "v", (7,)) and not acts_otherwise("{{ other <= v | int }}", "v", (7,))
