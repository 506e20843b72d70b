"""Where a run resumes: at the newest step that any node holds, in an intact checkpoint or in a process that stayed
while its group changed. The others get it from that node."""

from __future__ import annotations

from dataclasses import fields

import torch

from train.engine import checkpoint
from train.engine.between_steps import Milestones, state_of
from train.engine.checkpoint import State
from train.engine.early_stop import Gains
from train.engine.loop import Run, drawn_rows
from train.errors import BadInput, OtherData
from train.files import set_aside
from train.models.optimizer_step import optimizer_state, set_optimizer_state
from train.recipes import making


def bring_up_to_date(run: Run, kept: Run | None = None) -> str:
    """Brings all ranks to the same step, weights and optimizer; returns why there. `kept`: what this process has of its
    last group."""
    saved = None if kept and kept.step else find_own(run)
    state_here: State | None = saved.state if saved else None
    if kept and kept.step:
        state_here = {**state_of(kept), "step": kept.step}
    source, state = choose_source(run.world.gather(state_here))
    why = take_over(run, saved, source, state, kept)
    run.strategy.resume(run.step, state or {})
    return why


def take_over(run: Run, saved: checkpoint.Saved | None, source: int, state: State | None, kept: Run | None) -> str:
    if state is None and run.config.resume not in ("auto", "never"):
        raise BadInput(
            f"resume: no node has a checkpoint of run '{run.config.resume}'", fix="use resume: auto or never"
        )
    if state is None:
        # A random number may differ between kinds of processor: the first weights are those of rank 0.
        run.world.broadcast([p.data for p in run.trained.parameters], source)
        return "from the beginning: no checkpoint of this run"
    require_same_math(run, state)
    if run.world.rank == source and saved is not None:
        checkpoint.load(saved, run.module.model, run.trained.optimizer)
        run.strategy.load(checkpoint.outer(saved))
    is_here = saved is not None and saved.step == state["step"]
    take_facts(run, state, is_here=is_here)
    send_state(run, source, kept)
    if run.strategy.own_moments and saved is not None and is_here:
        checkpoint.load_moments(saved, run.trained.named, run.trained.optimizer)
    if run.trained.scaler and state["scaler"]:
        run.trained.scaler.load_state_dict(state["scaler"])
    return f"resumed at step {run.step}, from {run.workers.names[source]}"


def take_facts(run: Run, state: State, *, is_here: bool) -> None:
    """Takes what is known beside the weights; `is_here`: this node has it on its disk."""
    step = state["step"]
    run.step, run.balance = step, run.balance.knowing(state.get("speeds", {}))
    run.warm_up = state.get("warm_up", run.config.warmup_steps)
    run.milestones = Milestones(
        settled=step,
        saved=step if is_here else -1,
        evaluated=state.get("evaluated", step),
        best=state["best"],
        base=state.get("base"),
        newest=state.get("newest"),
        metrics=dict(state.get("metrics", {})),
        gains=Gains(**state["gains"]) if "gains" in state else Gains(),
    )
    recipe = making(run.recipe)
    if recipe and "made" in state:
        run.step_rows = recipe.resumed(run, drawn_rows(run, step), state["made"])


def find_own(run: Run) -> checkpoint.Saved | None:
    config = run.config
    root = config.checkpoint_folder()
    if config.resume == "never":
        # The first process of the node moves old files; the gather that follows keeps the others from racing it.
        if run.world.writes:
            set_aside(root)
        return None
    if config.resume != "auto" and not checkpoint.steps(root):
        root = config.checkpoint_folder(config.resume)
    saved, problems = checkpoint.newest_intact(root)
    for problem in problems:
        run.reporter.warn(run.step, f"{run.world.node}: passed over a damaged checkpoint, {problem}")
    return saved


def choose_source(states: list[State | None]) -> tuple[int, State | None]:
    """The first rank among those with the newest step; rank 0 where nobody has any."""
    steps = [state["step"] if state else -1 for state in states]
    source = steps.index(max(steps))
    return source, states[source]


def require_same_math(run: Run, state: State) -> None:
    defaults = {spec.name: spec.default for spec in fields(run.config)}  # of what was no setting when it was written
    then, now = {**defaults, **state["math"]}, run.math
    changed = [name for name in now if then.get(name) != now[name]]
    where = f"checkpoint: {run.config.checkpoint_folder()}"
    if changed and set(changed) <= {"rows", "held-out rows"}:  # hashes, which tell a person nothing
        raise OtherData(run.config.run, where)
    if changed:
        what = ", ".join(f"{name} was {then.get(name)}, is {now[name]}" for name in changed[:3])
        raise BadInput(
            f"run '{run.config.run}' cannot continue with other settings: {what}",
            where,
            "set them back, choose another run name, or start again with resume: never",
        )


def send_state(run: Run, source: int, kept: Run | None) -> None:
    """Sends weights, optimizer state and what the strategy keeps from one rank to all. A process that stayed keeps its
    own until all is there: the source may be lost on the way, and nobody else have that step."""
    named, optimizer = run.trained.named, run.trained.optimizer
    weights = [p.data for p in named.values()]
    apart = kept is not None and run.world.rank != source
    arrives = [torch.empty_like(weight, device="cpu") for weight in weights] if apart else weights
    run.world.broadcast(arrives, source)
    if run.world.size == 1:
        return
    tensors, numbers = optimizer_state(named, optimizer)
    shapes = {name: [list(t.shape), str(t.dtype).removeprefix("torch."), t.device.type] for name, t in tensors.items()}
    shapes, numbers = run.world.gather([shapes, numbers])[source]
    if run.world.rank != source:
        tensors = {
            name: torch.empty(shape, dtype=getattr(torch, kind), device=run.device if where != "cpu" else "cpu")
            for name, (shape, kind, where) in shapes.items()
        }
    run.world.broadcast([tensors[name] for name in sorted(tensors)], source)
    with run.trained.changing():  # a process that stayed may be told to leave meanwhile, and saves
        for weight, arrived in zip(weights, arrives if apart else [], strict=apart):
            weight.copy_(arrived)
        set_optimizer_state(named, optimizer, tensors, numbers)
        if kept:  # what is saved of it, or sent on, is that step from now on, also where this group ends at once
            kept.step = kept.strategy.shared_step = run.step
            kept.milestones, kept.step_rows, kept.warm_up = run.milestones, run.step_rows, run.warm_up
    run.world.broadcast(list(run.strategy.tensors().values()), source)
