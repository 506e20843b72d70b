"""HOME/env: a link to the environment in force, which is exchanged in one step.

HOME/env.previous leads to the one before it; what was there before Motley stays beside them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

BEFORE = "env.before-motley"


def target(link: Path) -> str:
    return os.readlink(link) if link.is_symlink() else ""  # noqa: PTH115  the name as written


def switch(home: Path, name: str) -> None:
    """In one step for whoever looks at HOME/env; what was there stays."""
    link, was = home / "env", target(home / "env")
    if link.exists() and not link.is_symlink():
        move(link, home / BEFORE)
        was = BEFORE
    if was and was != name:
        point(home / "env.previous", was)
    point(link, name)


def move(source: Path, to: Path) -> None:
    try:
        source.rename(to)
    except OSError:  # a read-only layer below it
        shutil.move(source, to)


def point(link: Path, name: str) -> None:
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(name)
    new.replace(link)
