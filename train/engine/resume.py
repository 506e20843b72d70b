"""Where a run goes on: at the newest intact checkpoint that any node holds. The others get it from that node."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from train.engine import checkpoint
from train.engine.loop import Run, warn
from train.errors import BadInput
from train.models.weights import Named, optimizer_state, set_optimizer_state, trained_weights


def bring_up_to_date(run: Run) -> str:
    """All ranks at the same step with the same weights and optimizer; returns why there."""
    saved = find_own(run)
    source, state = choose_source(run.world.gather(saved.state if saved else None))
    why = take_over(run, saved, source, state)
    run.settled = run.step
    if run.rounds:
        run.rounds.go_on(run.step, state)
    return why


def take_over(run: Run, saved: checkpoint.Saved | None, source: int, state: dict[str, Any] | None) -> str:
    named = dict(sorted(trained_weights(run.shell.model).items()))
    if state is None and run.config.resume not in ("auto", "never"):
        raise BadInput(
            f"resume: no node has a checkpoint of run '{run.config.resume}'", fix="use resume: auto or never"
        )
    if state is None:
        # A random number may differ between kinds of processor: the first weights are those of rank 0.
        run.world.broadcast([p.data for p in named.values()], source)
        return "from the beginning: no checkpoint of this run"
    require_same_math(run, state)
    if run.world.rank == source and saved is not None:
        checkpoint.load(saved, run.shell.model, run.optimizer)
        if run.rounds:
            run.rounds.load(checkpoint.outer(saved))
    send_state(run, named, source)
    run.step, run.best, run.proven = int(state["step"]), state["best"], -1
    run.balance = run.balance.knowing(state.get("speeds", {}))
    run.saved = run.step if saved and saved.step == run.step else -1
    if run.scaler and state["scaler"]:
        run.scaler.load_state_dict(state["scaler"])
    return f"resumed at step {run.step}, from {run.identity['names'][source]}"


def find_own(run: Run) -> checkpoint.Saved | None:
    config = run.config
    root = config.checkpoint_folder()
    if config.resume == "never":
        # The first process of the node moves old files; the gather that follows keeps the others from racing it.
        if run.world.writes:
            move_aside(root)
        return None
    if config.resume != "auto" and not checkpoint.steps(root):
        root = config.checkpoint_folder(config.resume)
    saved, problems = checkpoint.newest_intact(root)
    for problem in problems:
        warn(run, f"{run.world.node}: passed over a damaged checkpoint, {problem}")
    return saved


def move_aside(root: Path) -> None:
    if root.is_dir():
        root.rename(root.with_name(f"{root.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))


def choose_source(states: list[dict[str, Any] | None]) -> tuple[int, dict[str, Any] | None]:
    """The first rank among those with the newest step; rank 0 where nobody has any."""
    steps = [int(state["step"]) if state else -1 for state in states]
    source = steps.index(max(steps))
    return source, states[source]


def require_same_math(run: Run, state: dict[str, Any]) -> None:
    then, now = state["math"], run.identity["math"]
    if changed := [name for name in now if then.get(name) != now[name]]:
        what = ", ".join(f"{name} was {then.get(name)}, is {now[name]}" for name in changed[:3])
        raise BadInput(
            f"run '{run.config.run}' cannot go on with other settings: {what}",
            f"checkpoint: {run.config.checkpoint_folder()}",
            "set them back, choose another run name, or start anew with resume: never",
        )


def send_state(run: Run, named: Named, source: int) -> None:
    """Weights and optimizer state from one rank to all."""
    run.world.broadcast([p.data for p in named.values()], source)
    if run.world.size == 1:
        return
    tensors, numbers = optimizer_state(named, run.optimizer)
    shapes = {name: [list(t.shape), str(t.dtype).removeprefix("torch."), t.device.type] for name, t in tensors.items()}
    shapes, numbers = run.world.gather([shapes, numbers])[source]
    if run.world.rank != source:
        tensors = {
            name: torch.empty(shape, dtype=getattr(torch, kind), device=run.device if where != "cpu" else "cpu")
            for name, (shape, kind, where) in shapes.items()
        }
    run.world.broadcast([tensors[name] for name in sorted(tensors)], source)
    set_optimizer_state(named, run.optimizer, tensors, numbers)
    if run.rounds:
        run.world.broadcast([run.rounds.velocity[name] for name in sorted(named)], source)
