"""Whether this node's workers can run: skipped after failures of its own, with a retry after longer and longer pauses.

A game that takes the GPU's memory for some hours excludes it for those hours, not until somebody restarts the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from train.cluster.timing import TIMING

OWN_FAILURES = 3


@dataclass
class Fitness:
    failures: int = 0
    """Failures of its own workers in a row, without a new step."""
    cause: str = ""
    """Why its workers failed last, or what holds them up now."""
    rests: int = 0
    """How often it was skipped since it last trained a step."""
    rests_until: float = 0.0
    unfit: bool = False
    """Whether it is unfit for good: nothing here changes by waiting."""
    stuck: str = ""
    """What is said of a worker that does not even end by SIGKILL, as long as that lasts."""

    def condition(self, at: float) -> str:
        if self.unfit:
            return "unfit"
        return "resting" if self.stuck or at < self.rests_until else "fit"

    def trained(self) -> None:
        self.failures = self.rests = 0

    def failed(self, cause: str, at: float, *, own: bool, run_has_trained: bool) -> str:
        """Returns the new condition. `own`: it may pass, as where a game has taken the GPU's memory."""
        self.cause = cause
        self.failures += 1
        if own and self.failures < OWN_FAILURES:
            return "fit"
        if not own or not run_has_trained:
            self.unfit = True
            return "unfit"
        self.rests_until = at + TIMING.again_s[min(self.rests, len(TIMING.again_s) - 1)]
        self.rests += 1
        self.failures = OWN_FAILURES - 1  # the first failure after the rest is one too many
        return "resting"


def stuck_words(pids: Sequence[int], *, card: bool) -> str:
    """What is said of workers that do not end; `card`: this machine has one whose driver runs."""
    one = len(pids) == 1
    who = f"process {pids[0]} does" if one else f"processes {', '.join(map(str, pids))} do"
    what = f"{who} not end though {'it was' if one else 'they were'} killed"
    if card:
        return f"{what}; most often its GPU is gone: look at dmesg there, and reboot"
    return f"{what}: look at dmesg there, and reboot if that lasts"


@dataclass
class Failures:
    """How often this host started a generation in a row because the last one failed, without a new step."""

    count: int = 0
    since: float = 0.0
    """When the first failure in the present generation was seen; 0: none."""
    step: int = -1
    """The highest step that was trained when a worker here failed last."""
    host_step: int = -1
    """The highest step that was trained when this host last started a generation because of a failure."""

    def next_generation(self, best_step: int) -> None:
        self.count = self.count + 1 if best_step <= self.host_step else 1
        self.host_step = best_step
