# MIT License, see LICENSE
"""Lets a node load while a launch is still being prepared (train/cluster/preload.py). Standard library alone."""

from __future__ import annotations

import re
from pathlib import Path

from ..train.runlog.last_launch import last_launch
from ..train.runlog.paths import PRELOAD
from .files import read
from .pausing import paused
from .run_unit import unit_of

PATH_UNIT = Path("/etc/systemd/system/motley-run.path")
FREE_BYTES = 2 << 30
"""Libraries take a quarter of it: what brings model and rows meanwhile has its memory too."""


def begin(home: Path) -> bool:
    """Ask the unit for it, where it knows of this, and where starting it early changes nothing for the run."""
    if not can(home):
        return False
    (home / PRELOAD).write_text("")
    return True


def can(home: Path) -> bool:
    return (
        " -m train agent " in read(home / "scripts/launch_cluster.sh")  # another would begin its run of then
        and f"PathExists={home / PRELOAD}\n" in read(PATH_UNIT)
        and unit_of(home) == "ours"
        and not last_launch(home).limits  # the unit sets a card's limits when it starts
        and not paused(home)
        and available_bytes() >= FREE_BYTES
    )


def available_bytes() -> int:
    found = re.search(r"(?m)^MemAvailable: +(\d+) kB", read(Path("/proc/meminfo")))
    return int(found[1]) << 10 if found else 0
