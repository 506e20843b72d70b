"""Words for a unit of systemd, in which % begins a specifier, and a space the next word."""

from __future__ import annotations

from pathlib import Path


def plain(text: str | Path) -> str:
    """Escapes a unit's line that is one word as a whole."""
    return str(text).replace("%", "%%")


def quoted(text: str | Path) -> str:
    escaped = plain(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
