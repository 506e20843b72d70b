"""Whether this node's workers can run: skipped after failures of its own, and tried again later and later.

A game that takes the GPU's memory for an evening excludes it for that evening, not until somebody restarts the agent.
"""

from __future__ import annotations

from dataclasses import dataclass

OWN_FAILURES = 3
AGAIN_S = (120.0, 300.0, 900.0, 1800.0, 3600.0)


@dataclass
class Fitness:
    failures: int = 0
    """Of its own, in a row without a new step."""
    cause: str = ""
    rests: int = 0
    """How often it was skipped since it last trained a step."""
    rests_until: float = 0.0
    unfit: bool = False
    """For good: nothing here changes by waiting."""
    stuck: str = ""
    """A worker that does not even end by SIGKILL, as long as that lasts."""

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
        self.rests_until = at + AGAIN_S[min(self.rests, len(AGAIN_S) - 1)]
        self.rests += 1
        self.failures = OWN_FAILURES - 1  # the first failure after the rest is one too many
        return "resting"
