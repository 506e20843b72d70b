"""Small text files of a node, as a look at it needs them. (run_here.py has its own: it is sent alone.)"""

from __future__ import annotations

from pathlib import Path


def read(path: Path) -> str:
    """Without its last line break; empty where there is nothing to be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
