"""What every lab stands on is made by the first that needs it; others wait for it, and none finds it half made."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def filling(folder: Path) -> Iterator[Path | None]:
    """A folder to fill, which becomes `folder` once it is whole; None where that is there."""
    if folder.exists():
        yield None
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists():
            yield None
            return
        # Not one name for all: below what a killed lab has left, something may still be mounted.
        unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.unfinished")
        unfinished.mkdir()
        try:
            yield unfinished
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
