"""The trials of a sweep, as the record of its pieces has them: what each tried, how its held-out loss fell, who has it.

The recipe proposes from them, follow, report and live page show them. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

STATES = ("done", "running", "pruned", "failed")
"""The best first."""
SWEEP = "sweep.json"
BEST_RUN = "best.yml"
"""Below a sweep's results: all trials, and the best one's settings as a file for ./motley launch -f."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    number: int
    node: str
    params: Mapping[str, Any]
    state: str
    losses: tuple[tuple[int, float], ...] = ()
    """Held-out losses by step."""
    total: int = 0
    """Steps of the whole trial."""
    seconds: float = 0.0
    reason: str = ""
    """Why it failed."""

    @property
    def loss(self) -> float | None:
        """The best."""
        return min((loss for _, loss in self.losses), default=None)

    @property
    def newest(self) -> float | None:
        return self.losses[-1][1] if self.losses else None

    @property
    def steps(self) -> int:
        return self.losses[-1][0] if self.losses else 0

    @property
    def outcome(self) -> str:
        """What came of it, in words."""
        loss = "" if self.loss is None else f"held-out loss {self.loss:.4f}"
        if self.state == "failed":
            return f"failed: {self.reason}"
        if self.state == "pruned":
            return f"ended early, {loss} after {100 * self.steps // max(1, self.total)} %"
        return loss or "begins"

    def to_json(self) -> dict[str, object]:
        return {
            "trial": self.number,
            "params": dict(self.params),
            "loss": self.loss,
            "losses": [list(pair) for pair in self.losses],
            "steps": self.steps,
            "total": self.total,
            "node": self.node,
            "state": self.state,
            "seconds": self.seconds,
            "reason": self.reason,
        }


def running(number: int, node: str, what: Mapping[str, Any], notes: Iterable[Mapping[str, Any]]) -> Trial:
    """The trial from its piece and what its worker has told of it."""
    evaluations = [note for note in notes if "loss" in note]
    losses = losses_of([note["step"], note["loss"]] for note in evaluations)
    total = max((int(note["total"]) for note in evaluations), default=0)
    return Trial(number=number, node=node, params=what["params"], state="running", losses=losses, total=total)


def ended(number: int, node: str, seconds: float, result: Mapping[str, Any]) -> Trial:
    return Trial(
        number=number,
        node=node,
        params=result["params"],
        state=result["state"],
        losses=losses_of(result["losses"]),
        total=int(result["total"]),
        seconds=round(seconds, 1),
        reason=str(result.get("reason", "")),
    )


def from_events(events: Iterable[Mapping[str, Any]]) -> list[Trial]:
    """The trials from what was told of the pieces of a run, in order of time; none where they are no trials. A trial
    that was lost with its machine may begin again with other settings."""
    trials: dict[int, Trial] = {}
    for event in events:
        number, node = int(event["piece"]), str(event["node"])
        trial = replace(trials.get(number) or begun(number, node, {}), node=node)
        if event["event"] == "piece":
            state = "done" if trial.state == "running" else trial.state
            trials[number] = replace(trial, seconds=float(event["step_s"]), state=state)
            continue
        fact = event["fact"]
        if "params" in fact and fact["params"] != trial.params:
            trial = begun(number, node, fact["params"])
        if "loss" in fact:
            trial = replace(trial, losses=(*trial.losses, (fact["step"], fact["loss"])), total=int(fact["total"]))
        state, reason = str(fact.get("state", trial.state)), str(fact.get("reason", trial.reason))
        trials[number] = replace(trial, state=state, reason=reason)
    return [
        replace(trial, losses=losses_of(trial.losses))
        for _, trial in sorted(trials.items())
        if trial.params and trial.state in STATES
    ]


def begun(number: int, node: str, params: Mapping[str, Any]) -> Trial:
    return Trial(number=number, node=node, params=params, state="running")


def losses_of(pairs: Iterable[Any]) -> tuple[tuple[int, float], ...]:
    """Each step once: a trial that began again at a checkpoint tells some of them twice."""
    by_step = {int(step): float(loss) for step, loss in pairs if loss is not None and math.isfinite(float(loss))}
    return tuple(sorted(by_step.items()))


def ranked(trials: Iterable[Trial]) -> list[Trial]:
    """The best first: what was trained to its end by its loss, then what runs, then what was ended early."""

    def place(trial: Trial) -> tuple[int, float, int]:
        return STATES.index(trial.state), math.inf if trial.loss is None else trial.loss, trial.number

    return sorted(trials, key=place)


def best(trials: Iterable[Trial]) -> Trial | None:
    """The best that was trained to its end."""
    return next((trial for trial in ranked(trials) if trial.state == "done" and trial.loss is not None), None)


def words(params: Mapping[str, Any]) -> str:
    return "  ".join(f"{name} {shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)


def progress(trials: Iterable[Trial]) -> str:
    """The best so far, and what runs with its newest loss: for a line that is drawn again and again."""
    trials = list(trials)
    winner = best(trials)
    parts = [f"best {winner.loss:.4f} ({words(winner.params)})"] if winner else []
    for trial in trials:
        if trial.state == "running":
            parts.append(f"{trial.node} {'begins' if trial.newest is None else f'{trial.newest:.4f}'}")
    return " · ".join(parts)


def summary(trials: Iterable[Trial], total: int) -> str:
    """A sweep in a line: 24 of 24 trials · best 0.4120 with learning_rate 0.00031  lora_r 16 (gpu-1) · 9 ended early"""
    trials = list(trials)
    parts = [f"{sum(trial.state != 'running' for trial in trials)} of {total} trials"]
    if winner := best(trials):
        parts.append(f"best {winner.loss:.4f} with {words(winner.params)} ({winner.node})")
    for state, what in (("running", "running"), ("pruned", "ended early"), ("failed", "failed")):
        if count := sum(trial.state == state for trial in trials):
            parts.append(f"{count} {what}")
    return " · ".join(parts)
