"""Which steps of a run are recorded (`profile: 20-23`), and what is said of those that it cannot record."""

from __future__ import annotations

import re

from train.errors import BadInput

MOST = 20
"""Steps: more are no longer looked at one by one, and make a trace that no viewer likes."""


def profiled_steps(text: str) -> range:
    """The steps that a setting names; none where nothing is to be recorded."""
    if not text:
        return range(0)
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last:
        raise BadInput(f"profile: '{text}' is not FIRST-LAST, two steps from 1", fix="for example: profile=20-23")
    if last - first >= MOST:
        fix = f"profile={first}-{first + MOST - 1}"
        raise BadInput(f"profile: {text} are {last - first + 1} steps, at most {MOST} are recorded", fix=fix)
    return range(first, last + 1)


def to_record(text: str, step: int, total_steps: int) -> tuple[range, str]:
    """The profiled steps that come after `step`, and why not all of them; empty where all are."""
    steps = profiled_steps(text)
    left = range(max(steps.start, step + 1), min(steps.stop, total_steps + 1))
    if not steps or left == steps:
        return steps, ""
    if left:
        return left, f"profile {text}: {named(left)} alone; this run is at step {step} of {total_steps}"
    none = f"profile {text}: nothing is recorded"
    if max(steps.start, step + 1) > total_steps:
        return left, f"{none}, this run ends with step {total_steps}"
    others = named(range(step + 1, min(step + len(steps), total_steps) + 1))
    return left, f"{none}, step {step} is done already; for the next ones: profile={others}"


def ends_of(steps: range) -> list[int]:
    return [steps.start, steps.stop - 1]


def named(steps: range) -> str:
    return "-".join(dict.fromkeys(map(str, ends_of(steps))))
