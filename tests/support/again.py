"""How long those take to train again who know of a change."""

from __future__ import annotations

from typing import Any


def begun_again_s(training: Any, name: str, since: float) -> float:
    """From the newest generation to what its worker says before the first step: what rebuilding the group takes."""
    known = [event["time"] for event in training.members(name, "plan") if event["time"] > since][-1]
    begins = (event["time"] for event in training.events(name) if event["event"] == "start")
    return float(next(at for at in begins if at > known) - known)
