"""Folders as nodes that have a finished run of a real model, and the processes that answer in them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from pathlib import Path

from tests.support.cluster import REPOSITORY

RUN = "notes"


def homes_of(python: Path, model: str, homes: Mapping[str, Path]) -> None:
    """`python`: of a node's environment."""
    program = [python, "-m", "tests.support.finished_run", model, *homes.values(), "--run", RUN]
    subprocess.run(program, cwd=REPOSITORY, check=True, capture_output=True)
    for home in homes.values():
        (home / "env").symlink_to(python.parents[1])
        (home / "code").symlink_to(REPOSITORY)


def server_of(home: Path) -> int:
    """The process that answers in this home."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words, place = (folder / "cmdline").read_bytes().split(b"\0"), (folder / "cwd").readlink()
        except OSError:
            continue
        if place == home.resolve() and {b"train", b"serve"} <= {*words}:
            return int(folder.name)
    raise AssertionError(f"nobody answers in {home}")
