"""The files that a launch leaves in a node's home for Motley itself. Standard library alone: it is sent along.

config/cluster_config.yaml    who trains together: a line of JSON for each fact, so it is YAML too
                              (train/plan/launch/cluster_config.py writes it, and checks what an agent reads)
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
    """What every verb may want to know of the launch whose files a node has; empty where it has none."""

    run: str = ""
    interface: str = ""
    nodes: tuple[tuple[str, str], ...] = ()
    """The name and the address of each."""
    token: str = ""


def as_lines(facts: Mapping[str, Any], about: Mapping[str, str]) -> str:
    """`about`: what stands above a line, for people."""
    return "".join(
        (f"# {about[name]}\n" if name in about else "") + f"{name}: {_value(value)}\n" for name, value in facts.items()
    )


def _value(value: Any) -> str:
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], dict):
        return "[\n  " + ",\n  ".join(map(_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def in_lines(text: str) -> dict[str, Any]:
    """What a launch has written so; of what a person has written, its plain words."""
    found: dict[str, Any] = {}
    for name, value in FACT.findall(text):
        with suppress(ValueError):
            found[name] = json.loads(value)
            continue
        found[name] = value.partition(" #")[0].strip().strip("'")
    return found


def last_launch(home: Path) -> LastLaunch:
    try:
        facts = in_lines((home / CLUSTER).read_text(errors="replace"))
    except OSError:
        return LastLaunch()
    nodes = facts.get("nodes")
    listed = [(str(node["name"]), str(node["address"])) for node in nodes] if isinstance(nodes, list) else []
    words = {name: str(facts.get(name, "")) for name in ("run", "interface", "token")}
    return LastLaunch(**words, nodes=tuple(listed))
