"""What every verb may want to know of the launch whose files a node has. Standard library alone: it is sent along.

config/cluster_config.yaml is read here without YAML: a line of JSON for each fact, so it is YAML too
(train/plan/launch/cluster_config.py writes it so, and checks what an agent reads).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .paths import CLUSTER

FACT = re.compile(r"(?m)^(\w+):((?:.|\n +)*)")
"""A name, and its value with the lines that are set in below it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LastLaunch:
    """Empty where a node has the files of none."""

    run: str = ""
    interface: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    """The name and the address of each."""
    limits: bool = False
    """Whether its graphics cards get some."""


def as_lines(facts: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """`about`: what stands above a line, for people."""
    above = {name: f"# {text}\n" for name, text in about.items()}
    return "".join(f"{above.get(name, '')}{name}: {_value(value)}\n" for name, value in facts.items())


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def in_lines(text: str) -> dict[str, Any]:
    """What a launch has written so; of what a person has written, its plain words."""
    facts: dict[str, Any] = {}
    for name, value in FACT.findall(text):
        try:
            facts[name] = json.loads(value)
        except ValueError:  # no JSON: by hand, and what has lines of its own is left out
            facts[name] = "" if "\n" in value else value.partition(" #")[0].strip().strip("'")
    return facts


def last_launch(home: Path) -> LastLaunch:
    facts: dict[str, Any] = {}
    with suppress(OSError):
        facts = in_lines((home / CLUSTER).read_text(errors="replace"))
    listed = facts.get("nodes")
    members = [node for node in listed if isinstance(node, dict)] if isinstance(listed, list) else []
    return LastLaunch(
        run=str(facts.get("run", "")),
        interface=str(facts.get("interface", "")),
        nodes=tuple((str(node.get("name")), str(node.get("address"))) for node in members),
        limits=bool(facts.get("limits")),
    )
