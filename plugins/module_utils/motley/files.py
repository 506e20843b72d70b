"""Small text files of a node: what a look at them reads, and how a change of one is shown."""

from __future__ import annotations

from pathlib import Path


def read(path: Path) -> str:
    """Without its last line break; empty where there is nothing to be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def difference(what: Path | str, before: str, after: str) -> dict[str, str]:
    """The difference that Ansible shows with --diff."""
    return {"before_header": str(what), "after_header": str(what), "before": before, "after": after}
