"""Who holds the locks of apt and dpkg."""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

from .files import read

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock")


def holder() -> str:
    """The program that uses apt now; empty when none does."""
    for lock in filter(os.path.exists, LOCKS):
        with Path(lock).open("rb") as stream:
            asked = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, pid = struct.unpack("hhqqi", fcntl.fcntl(stream, fcntl.F_GETLK, asked))
        if kind != fcntl.F_UNLCK:
            name = read(Path(f"/proc/{pid}/comm"))
            return f"{name} (process {pid})" if name else "another program"
    return ""
