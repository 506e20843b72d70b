"""Small text files of a node: what a look at them reads, and how a change of one is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read(path: Path) -> str:
    """Without its last line break; empty where there is nothing to be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def read_json(path: Path) -> Any:
    """A file's object; an empty one where there is no such file, or something else in it."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def existing(path: Path) -> Path:
    """Itself, or the nearest folder above it that is there."""
    return next(place for place in [path, *path.parents] if place.exists())


def difference(what: Path | str, before: str, after: str) -> dict[str, str]:
    """The difference that Ansible shows with --diff."""
    return {"before_header": str(what), "after_header": str(what), "before": before, "after": after}
