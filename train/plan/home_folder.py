"""What is brought to the nodes is never a whole home folder."""

from __future__ import annotations

from pathlib import Path

from train.errors import BadInput


def refuse_home(folder: Path) -> None:
    """A home folder, or one above it, is a slip: all that somebody has would be read and sent to the nodes."""
    if Path.home().resolve().is_relative_to(folder.resolve()):
        raise BadInput(
            "this folder has your whole home folder in it, and all of that would go to the nodes",
            f"folder: {folder.resolve()}",
            "put what is meant in a folder of its own, and name that",
        )
