# MIT License, see LICENSE
"""The unit that keeps a node's part of a run running, where bootstrap has installed it. Standard library alone."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from ..train.runlog.paths import UNIT

UNITS = (UNIT.replace(".service", ".path"), UNIT)


def unit_of(home: Path) -> str:
    """ours, other (it belongs to another folder), or none."""
    try:
        path, service = (systemctl("show", "-p", "ActiveState,LoadState,ExecStart", name) for name in UNITS)
    except (OSError, subprocess.SubprocessError):
        return "none"
    if "LoadState=loaded" not in service or "ActiveState=active" not in path:
        return "none"
    script = os.path.realpath(home / "scripts/launch_cluster.sh")
    named = re.search(r"path=(\S+)", service)
    return "ours" if named and os.path.realpath(named[1]) == script else "other"


def leaving() -> bool:
    return systemctl("show", "-P", "ActiveState", UNIT).strip() == "deactivating"


def systemctl(*words: str) -> str:
    return subprocess.run(["systemctl", *words], capture_output=True, text=True, check=True, timeout=5).stdout
