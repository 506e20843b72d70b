"""Whoever sits at a machine takes it out of its run with a file, runlog.paths.PAUSE below motley_home. An empty one
lasts until it is removed; with `2h` or `90m` in it for so long from when it was written. Standard library alone: it is
sent to the nodes.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

SECONDS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}


@dataclass(frozen=True)
class Pause:
    until: float = 0.0
    """0: until it is removed."""


def seconds(text: str) -> float | None:
    """`2h`, `1h30m`, `90 min`; None where it is no time."""
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*(min|[dhms])\s*", text.strip().lower())
    whole = "".join(re.split(r"\s+", text.strip().lower()))
    if not parts or "".join(number + unit for number, unit in parts) != whole:
        return None
    return sum(float(number) * SECONDS[unit] for number, unit in parts)


def read(file: Path, at: float) -> Pause | None:
    """The pause; None where there is none, or its time is over."""
    try:
        lasts_s, since = seconds(file.read_text(errors="replace")), file.stat().st_mtime
    except OSError:
        return Pause() if file.exists() else None  # somebody else's, closed to us: it is there all the same
    if lasts_s is None:
        return Pause()
    return Pause(since + lasts_s) if at < since + lasts_s else None


def words(until: float, at: float) -> str:
    """When it ends, as the clock on this machine's wall shows it; empty where nobody knows."""
    if not until:
        return ""
    day = "" if time.localtime(until)[:3] == time.localtime(at)[:3] else "%a "
    return "until " + time.strftime(f"{day}%H:%M:%S" if until - at < 60 else f"{day}%H:%M", time.localtime(until))
