"""Whether a process lives. One that has ended and whose parent does not ask for it is a zombie: /proc still has it."""

from __future__ import annotations

from pathlib import Path


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
