"""Where a run runs. An infra is a folder here, found by its name (`infra: NAME` in an inventory), with these parts:

    __init__.py  INFRA: what the controller has to know before it does anything there
    node.py      node(name, values, state): how one gets to a node; console/infra/node.py has the verbs that it answers
    look.py      look(known, args): asks what a launch can use there
    plan.py      plan(known, args): decides what will run
    files.py     files(known, args): writes down what it runs by
    start.py     start(known, args): starts it

The last four are steps of playbooks/launch.yml. Each gets all variables of the host and what the task gives. It returns
the task's result, or the module that the host is to run (OnNode). docs/inside/add-an-infra.md makes one.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from train.errors import BadInput

Facts = dict[str, Any]
NAMES = tuple(sorted(entry.name for entry in pkgutil.iter_modules(__path__) if entry.ispkg))
USUAL = "machines"
"""The infra of an inventory that names none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Infra:
    ours: bool = False
    """Whether its hosts are machines that Motley sets up."""
    fetches: bool = False
    """Whether its nodes fetch model and rows themselves; otherwise a launch brings these."""
    one_host: str = ""
    """Why an inventory of this kind has one host; empty where it may have several."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """The keys of its inventories that no other has, each with its type."""
    variables: tuple[str, ...] = ()
    """The launch variables that no other infra takes."""
    wrong: str = ""
    """The function that finds what is wrong with these (MODULE:NAME); a launch alone loads it."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """The launch variables that mean nothing there, each with the reason and the fix."""
    lacks: Mapping[str, str] = field(default_factory=dict)
    """The verbs that mean nothing there, each with what one does instead."""


@dataclass(frozen=True, slots=True)
class OnNode:
    """A module that a step runs on its host."""

    module: str
    params: Facts
    beside: Facts = field(default_factory=dict)
    """What the controller adds to its result."""


def name_of(values: Mapping[str, Any]) -> str:
    """The infra of a host, by its variables."""
    return str(values.get("infra", USUAL))


def infra_of(values: Mapping[str, Any]) -> Infra:
    return about(name_of(values))


def about(infra: str) -> Infra:
    found: Infra = _module(infra).INFRA
    return found


def part(infra: str, name: str) -> Callable[..., Any]:
    """The function of the file of the same name."""
    found: Callable[..., Any] = getattr(_module(infra, f".{name}"), name)
    return found


def _module(infra: str, file: str = "") -> Any:
    if infra not in NAMES:
        raise BadInput(f"there is no infra '{infra}'", fix=f"fix: one of {', '.join(NAMES)}")
    return import_module(f"{__name__}.{infra}{file}")


def is_local(values: Mapping[str, Any]) -> bool:
    """Whether a host is this machine: nobody logs in, nothing asks for a password."""
    return values.get("ansible_connection") == "local"
