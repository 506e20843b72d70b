"""Whether a job's time is enough to train in: a shorter one would only start, save and be queued again, for ever."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence

from console.infra.slurm.job_files import LEAVE_S
from plugins.module_utils.motley.slurm_job import named
from train.errors import BadInput

START_S = 120
"""The nodes start within a minute, and Slurm may send the signal a minute early."""


def minutes_of(text: str) -> int | None:
    """The minutes that sbatch reads: M, M:S, H:M:S, D-H, D-H:M or D-H:M:S, rounded up. None: no limit, or no time."""
    days, dash, rest = text.rpartition("-")
    parts = rest.split(":")
    if not all(part.isdecimal() for part in [*parts, days or "0"]) or len(parts) > 3:
        return None
    from_hours = bool(dash) or len(parts) == 3
    hours, minutes, seconds = [*([] if from_hours else [0]), *map(int, parts), 0, 0][:3]
    return int(days or 0) * 1440 + hours * 60 + minutes + math.ceil(seconds / 60) or None


def refuse_short(options: Sequence[str]) -> None:
    """`options`: of sbatch, one each; of two that say the same the later one counts."""
    said = {"time" if name == "t" else name: value for name, value in map(named, map(shlex.split, options))}
    notice_s = int((re.findall(r"@(\d+)$", said.get("signal", "")) or [LEAVE_S])[0])
    least = (notice_s + START_S) // 60 + 1
    for name in ("time", "time-min"):
        if (minutes_of(said.get(name, "")) or least) < least:
            raise BadInput(
                f"the job's time leaves none to train: it saves {notice_s} s before, and a start takes {START_S} s",
                where=f"where: --{name}={said[name]}, of slurm_options or motley_slurm_options",
                fix=f"fix: --{name}={least} or more; a job of hours loses little to its starts",
            )
