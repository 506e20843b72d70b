# MIT License, see LICENSE
"""What Motley writes down beside an environment once all of it is there."""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from pathlib import Path
from typing import TypedDict

from . import env_files
from .files import read_json

RECORD = "motley-env.json"


class Record(TypedDict):
    """What stands beside an environment that Motley made."""

    lock: str
    python: str
    packages: list[str]
    made: str


class Look(TypedDict):
    """Which locked set HOME/env has, and what is wrong with it."""

    changed: bool
    python: str
    machine: str
    driver: str
    current: str
    lock: str
    why: str
    harmed: list[str]


def this_python() -> str:
    return "{}.{}".format(*sys.version_info[:2])


def read_record(env: Path) -> Record | None:
    record: Record | None = read_json(env / RECORD) or None
    return record


def write_record(env: Path, lock: str) -> None:
    made = time.strftime("%Y-%m-%dT%H:%M:%S%z")
    record = {"lock": lock, "python": this_python(), "packages": env_files.installed(env), "made": made}
    new = env / f".{RECORD}"
    new.write_text(json.dumps(record, indent=1) + "\n")
    sync_disk_of(env)  # the record says that all is there: after a power cut as well
    new.replace(env / RECORD)


def sync_disk_of(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        ctypes.CDLL(None, use_errno=True).syncfs(folder)
    finally:
        os.close(folder)
