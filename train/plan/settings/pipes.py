"""`pipes: a+b,c` as groups of nodes. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from train.errors import BadInput
from train.plan.values import nearest

Group = tuple[str, ...]


def parse_pipes(text: str) -> list[Group]:
    """`a+b,c` as groups of names, in order; none for auto and off."""
    if text in ("auto", "off", ""):
        return []
    groups = [tuple(name.strip() for name in group.split("+")) for group in text.split(",")]
    names = [name for group in groups for name in group]
    if not all(names) or len(set(names)) < len(names):
        raise BadInput(f"pipes: '{text}' is no list of nodes, each once", fix="for example: pipes=desktop+laptop,tower")
    return groups


def check_names(groups: Sequence[Group], known: Sequence[str]) -> None:
    for name in (name for group in groups for name in group):
        if name not in known:
            raise BadInput(f"pipes: no node is called '{name}'{nearest(name, known)}", f"known: {' '.join(known)}")
