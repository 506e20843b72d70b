"""`patience`: a run ends when its held-out loss no longer falls, and its best weights are the result.

How many evaluations went by without a gain is part of each checkpoint, so the end comes at the same step however often
the run was interrupted, and on any cluster.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from train.engine import checkpoint, consistency
from train.plan.settings.read_settings import RunConfig
from train.runlog.event_types import Best

if TYPE_CHECKING:
    from train.engine.loop import Run

LEAST_GAIN = 0.001
"""The least gain, as a part of the loss. Less adds up: the next gain is measured from the last one that counted."""
EVALUATIONS = 20
"""How many evaluations a whole run has, where eval_every is not set."""


@dataclass
class Gains:
    mark: float | None = None
    """The held-out loss at the last gain that counted."""
    without: int = 0
    """Evaluations since then."""

    def learn(self, loss: float) -> None:
        if self.mark is None:
            gained = math.isfinite(loss)
        else:
            gained = loss < self.mark and loss <= self.mark - LEAST_GAIN * abs(self.mark)
        self.mark, self.without = (loss, 0) if gained else (self.mark, self.without + 1)


def eval_every(config: RunConfig, total_steps: int) -> int:
    """Steps between two evaluations; 0: only at the end."""
    return config.eval_every or (max(1, total_steps // EVALUATIONS) if config.patience else 0)


def why(config: RunConfig, total_steps: int) -> str:
    """What is said of `patience` at the start of a run."""
    if not config.patience:
        return ""
    every = eval_every(config, total_steps)
    return f"patience {config.patience}: evaluated every {every} steps, ends where so many do not gain {LEAST_GAIN:.1%}"


def is_over(run: Run) -> bool:
    return run.step >= run.total_steps or ends_early(run)


def ends_early(run: Run) -> bool:
    patience = run.config.patience
    return bool(patience) and run.milestones.gains.without >= patience and run.step < run.total_steps


def conclude(run: Run) -> None:
    """Says after the last step why it was the last, and puts the best weights in place of the last ones. Where no
    evaluation gave a number, there is no best."""
    if not run.config.patience:
        return
    best: Best = run.milestones.best or {"step": run.step, "loss": math.nan, "metrics": {}}
    if ends_early(run):
        count = run.milestones.gains.without
        what = f"no gain of {LEAST_GAIN:.1%}" if run.milestones.best else "no finite loss"
        reason = f"{what} on held-out rows in the last {count} evaluation{'s' * (count > 1)}"
        run.reporter.write("early_stop", step=run.step, best=best["step"], loss=best["loss"], reason=reason)
        run.reporter.say(f"ends early at step {run.step}: {reason}; the result is step {best['step']}")
    if best["step"] != run.step:
        take_best(run, best)


def saved_at(best: Best, config: RunConfig) -> Path:
    """Where the best's checkpoint is looked for: a run that began where another one was may have it from there."""
    own, other = (config.checkpoint_folder(run) / f"step-{best['step']}" for run in ("", config.resume))
    return other if other.is_dir() and not own.is_dir() else own


def take_best(run: Run, best: Best) -> None:
    """Takes the best weights from a node that has them: one that was away then gets them from another."""
    saved = checkpoint.intact(saved_at(best, run.config).parent, best["step"])
    held = run.world.gather(saved.state["adapter"] if saved else None)
    source = next((rank for rank, adapter in enumerate(held) if adapter), None)
    if source is None:
        run.reporter.warn(run.step, f"no node has the best weights, of step {best['step']}: the result is the last")
        return
    run.milestones.saved = run.step  # from here on no checkpoint of this step may be written: these weights are older
    with run.trained.changing():
        if saved and run.world.rank == source:
            checkpoint.load_weights(saved, run.trained.named)
        run.world.broadcast([p.data for p in run.trained.parameters], source)
    mine = consistency.tensors_hash(run.trained.named.items())
    claims = [(name, {"adapter": value}) for name, value in run.world.gather([run.world.node, mine])]
    claims.append((f"the checkpoint of step {best['step']}", {"adapter": held[source]}))
    consistency.require_agreement(claims, "in the result", f"checkpoints: {run.config.checkpoint_folder()}")
    run.milestones.newest, run.milestones.metrics = best["loss"], dict(best.get("metrics", {}))
