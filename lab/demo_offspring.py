"""What the demo starts bears a mark in its environment, so that all of it can be ended.

Ansible puts itself and each of its workers into sessions of their own: neither a process group nor a parent leads to
them, and a demo that was killed is nobody's parent any more.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from lab.shell import LabError

MARK = "MOTLEY_DEMO"


def marked(environment: dict[str, str], place: Path) -> dict[str, str]:
    return environment | {MARK: str(place)}


def alive(place: Path) -> list[int]:
    mark = f"{MARK}={place}\0".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if mark in (folder / "environ").read_bytes():
                found.append(int(folder.name))
        except OSError:  # ended, or somebody else's
            continue
    return [pid for pid in found if pid != os.getpid()]


def end(place: Path, *, patience_s: float = 10) -> None:
    deadline = time.monotonic() + patience_s
    while found := alive(place):
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise LabError(f"processes {found[:5]} of the demo do not end: what do they wait for? ps -o pid,stat,wchan")
        time.sleep(0.05)
