"""Folders that are made once per machine: converted models, built datasets. A half-made one is never seen."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

from train.files import whole_folder
from train.layout import HOME


def cache_dir() -> Path:
    return Path(os.environ.get("MOTLEY_CACHE") or "~/.cache/motley").expanduser()


def home_dir() -> Path:
    """Where a node keeps its models, data and results."""
    return Path(os.environ.get("MOTLEY_HOME") or HOME).expanduser()


def build_once(folder: Path, build: Callable[[Path], None]) -> Path:
    """Run `build` on an empty folder that takes the wanted name only when complete; two processes share one build."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with whole_folder(folder) as unfinished:
                build(unfinished)
                unfinished.chmod(0o755)
    return folder
