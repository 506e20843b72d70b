"""A module that also returns how far its node's clock is off: the controller looks at its own before and after."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class Clocked(ActionBase):
    """The module's result has `clock`, its first and its last look at the time."""

    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        asked_at = time.time()
        result |= self._execute_module(task_vars=task_vars)
        if seen := result.pop("clock", None):
            first, last = seen
            result["clock_off_s"] = round(off_by(asked_at, first, last, time.time()), 1)
        return result


def off_by(asked_at: float, first: float, last: float, answered_at: float) -> float:
    """Seconds that are certain, however long question and answer were on their way; above 0 where the node is ahead."""
    at_least, at_most = last - answered_at, first - asked_at
    return 0.0 if at_least <= 0 <= at_most else min(at_least, at_most, key=abs)
