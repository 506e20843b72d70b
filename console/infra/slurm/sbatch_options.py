"""Options of sbatch: one each, none that the launch needs itself, and a time that is enough to train in. A shorter one
would only start, save and be queued again, for ever."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from console.infra import Facts
from plugins.module_utils.motley.slurm_login_node import named
from train.errors import BadInput

OURS = ("ntasks-per-node", "ntasks", "n", "chdir", "D", "output", "o", "open-mode", "array", "a", "wrap", "parsable")
"""Options on which the script relies."""
LEAVE_S = 90
"""Before its time is over a run saves: Slurm sends the signal up to a minute before that."""
START_S = 120
"""The nodes start within a minute, and Slurm may send the signal a minute early."""


def wrong(own: Mapping[str, Any]) -> list[str]:
    gb = str(own.get("slurm_gpu_gb") or 1)
    found = [] if re.fullmatch(r"\d+(\.\d+)?", gb) else [f"slurm_gpu_gb: '{gb}' is no number of GB"]
    try:
        options_of(str(own.get("slurm_options") or ""))
    except BadInput as finding:
        found.append(str(finding))
    return found


def of_job(known: Facts) -> list[str]:
    """The options of every job of the host's, and behind them those of this launch."""
    every = known["hostvars"][known["inventory_hostname"]].get("motley_slurm_options") or ""
    asked = known["motley_request_checked"]["asked"]["of_infra"]
    return [*options_of(str(every)), *options_of(str(asked.get("slurm_options") or ""))]


def options_of(text: str) -> list[str]:
    """One line of the script each; a value behind a space belongs to the option before it."""
    try:
        words = shlex.split(text)
    except ValueError as wrong:
        raise BadInput(f"slurm_options: {wrong}", fix="fix: close the quotes") from None
    if any("\n" in word for word in words):
        raise BadInput("slurm_options: a line break stands in quotes", fix="fix: write each option on one line")
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-"):
            found.append([word])
        elif found:
            found[-1].append(word)
        else:
            raise BadInput(
                f"slurm_options: '{word}' is no option", fix="fix: options of sbatch, as --partition=gpu --nodes=3"
            )
    for option in found:
        name, _ = named(option)
        if name in OURS:
            raise BadInput(f"slurm_options: --{name} is the launch's own", fix="fix: take it out")
    return [shlex.join(option) for option in found]


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
    values = {"time" if name == "t" else name: value for name, value in map(named, map(shlex.split, options))}
    notice_s = int((re.findall(r"@(\d+)$", values.get("signal", "")) or [LEAVE_S])[0])
    least = (notice_s + START_S) // 60 + 1
    for name in ("time", "time-min"):
        if (minutes_of(values.get(name, "")) or least) < least:
            raise BadInput(
                f"the job's time leaves none to train: it saves {notice_s} s before, and a start takes {START_S} s",
                where=f"where: --{name}={values[name]}, of slurm_options or motley_slurm_options",
                fix=f"fix: --{name}={least} or more; a job of hours loses little to its starts",
            )
