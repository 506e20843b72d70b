"""Between steps: the proof that all ranks hold the same, the evaluation on held-out rows, the checkpoint, each when it
is due. And the result, at the end."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.data import left_out_in_words
from train.data.mix_data_sets import looked_at
from train.engine import checkpoint, checkpoint_in_memory, consistency, early_stop
from train.engine.early_stop import Gains
from train.engine.micro_batch_search import with_less_each_time
from train.files import whole_folder
from train.models.backends import sums_over
from train.models.weights import write_weights
from train.plan.speed.row_split import spans, split_rows
from train.recipes import making
from train.recipes.model_card import CARD
from train.runlog.event_types import Best
from train.runlog.events import ON_DATA

if TYPE_CHECKING:
    from train.engine.loop import Run


@dataclass(kw_only=True)
class Milestones:
    """Steps after which something was done."""

    settled: int = 0
    """The last step at which all of it had its turn."""
    proven: int = -1
    saved: int = -1
    evaluated: int = 0
    """The last step that was evaluated; an evaluation that a signal broke off is made again when the run resumes."""
    best: Best | None = None
    """The best evaluation."""
    gains: Gains = field(default_factory=Gains)
    newest: float | None = None
    """Loss of the last evaluation."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the recipe measures beside the loss, of the last evaluation."""
    base: float | None = None
    """Loss of what there was to improve on: before the first step, or of the base, without what was trained."""


def between_steps(run: Run) -> bool:
    """Does what is due, where all ranks hold the same; whether anything was."""
    if run.step != run.strategy.shared_step:
        return False
    due = due_at(run, run.step)
    run.milestones.settled = run.step
    for act, now in due.items():
        if now:
            act(run)
    if early_stop.ends_early(run):
        save(run)
        evaluate_base(run)
    return any(due.values())


def make_up(run: Run) -> None:
    """Makes up for what was broken off behind a step, where the run resumes there: an evaluation, which `patience`
    counts, or what is saved after it. Before the first step, evaluates what a recipe begins with that makes its rows:
    what it wrote then is part of the story, and what is no better is not the best."""
    milestones = run.milestones
    if not run.step:
        if making(run.recipe) and milestones.base is None:
            evaluate(run)
        return
    if run.step != milestones.evaluated and due_at(run, run.step)[evaluate]:
        evaluate(run)
    elif milestones.best and milestones.best["step"] == run.step:
        save(run)
    if early_stop.is_over(run):
        save(run)
        evaluate_base(run)


def due_at(run: Run, step: int) -> dict[Callable[[Run], None], bool]:
    """What is due after this step, the first since the last settled one at which all ranks hold the same."""
    config, milestones, last = run.config, run.milestones, step == run.total_steps
    settled, eval_every = milestones.settled, early_stop.eval_every(config, run.total_steps)

    def passed(every: int, since: int = settled) -> bool:
        return step // every > since // every

    return {
        prove: settled == 0 or passed(config.proof_every),
        evaluate: last or bool(eval_every and passed(eval_every, milestones.evaluated)),
        save: last or passed(config.save_every),
        evaluate_base: last,
    }


def saves_after(run: Run, step: int) -> bool:
    due = due_at(run, step)
    return due[evaluate] or due[save]


def prove(run: Run) -> None:
    """Proves that all ranks hold the same adapter, bit for bit; else the run ends here."""
    if run.milestones.proven == run.step:
        return
    mine = consistency.tensors_hash(run.trained.named.items())
    claims: consistency.Claims = [
        (name, {"adapter": value}) for name, value in run.world.gather([run.world.node, mine])
    ]
    consistency.require_agreement(
        claims, f"at step {run.step}", f"the last proven checkpoint is kept: {run.config.checkpoint_folder()}"
    )
    run.milestones.proven = run.step
    run.reporter.write("proof", step=run.step, adapter=mine)


def evaluate(run: Run) -> None:
    """Evaluates on the held-out rows, each rank looking at its part; a new best is saved at once."""
    milestones = run.milestones
    if not (evaluation := held_out_loss(run)):
        milestones.evaluated = run.step
        return
    loss, targets, metrics = evaluation
    with run.trained.lock:  # a process that is leaving saves all of this or none
        better = math.isfinite(loss) and (milestones.best is None or loss < milestones.best["loss"])
        milestones.evaluated, milestones.newest, milestones.metrics = run.step, loss, metrics
        milestones.gains.learn(loss)
        milestones.base = loss if not run.step else milestones.base
        if better:
            milestones.best = {"step": run.step, "loss": loss, "metrics": metrics}
        run.reporter.held_out(run.step, loss, targets, metrics, best=better)
    show_samples(run)
    if better:
        save(run)


def show_samples(run: Run) -> None:
    """Logs the recipe's samples: one process makes them, and all nodes log the same."""
    lines = run.world.gather(run.recipe.samples(run) if run.world.speaks else None)[0]
    if lines:
        run.reporter.samples(run.step, lines)


def evaluate_base(run: Run) -> None:
    """Evaluates what there was to improve on, where that was not done at first; where all weights are trained it is
    gone."""
    model: Any = run.module.model
    if run.milestones.base is None and hasattr(model, "disable_adapter"):
        with model.disable_adapter():
            evaluation = held_out_loss(run)
        run.milestones.base = evaluation[0] if evaluation else None


def held_out_loss(run: Run) -> tuple[float, int, dict[str, float]] | None:
    """The held-out loss, its target tokens, and the recipe's metrics; None where nothing is held out."""
    if recipe := making(run.recipe):
        return recipe.held_out(run)
    data_sets = looked_at(run.held_out, run.config.eval_rows)
    if not any(rows for _, rows in data_sets):
        return None
    sums = [summed(run, rows) for _, rows in data_sets]
    *totals, targets = (sum(column) for column in zip(*sums, strict=True))
    loss, *metrics = (total / targets for total in totals)
    losses = {
        f"{ON_DATA}{name}": loss_sum / own_targets
        for (name, _), (loss_sum, *_, own_targets) in zip(data_sets, sums, strict=True)
        if name
    }
    return loss, int(targets), dict(zip(run.module.metrics, metrics, strict=True)) | losses


def summed(run: Run, held_out: list[int]) -> list[float]:
    """The summed loss over these rows, the sums of the recipe's metrics and the target tokens: of all ranks, each of
    which looks at its part."""
    workers, rank = run.workers, run.world.rank
    first, end = spans(split_rows(len(held_out), [1.0] * len(workers.groups)))[workers.of(rank)]
    mine = held_out[first:end]

    def looked_at_mine() -> tuple[list[float], int]:
        return sums_over(run.module, run.held_out, mine, micro_batch=run.micro_batch, device=run.device)

    in_a_pipe = any(len(group) > 1 for group in workers.groups)
    sums, targets = with_less_each_time(run, looked_at_mine, others_wait=lambda: in_a_pipe)
    of_ranks = run.world.numbers([*sums, float(targets if workers.leads(rank) else 0)])
    return [sum(column) for column in zip(*of_ranks, strict=True)]


def save(run: Run) -> None:
    """Saves a proven checkpoint on every node. A full disk costs this checkpoint, not the run."""
    prove(run)
    if run.world.writes:
        write_checkpoint(run)


def write_checkpoint(run: Run, *, leaving: bool = False) -> None:
    """Writes a checkpoint: on leaving into main memory where there is room, as the GPU must be free within seconds and
    the disk may be slow."""
    root, milestones = run.config.checkpoint_folder(), run.milestones
    with run.trained.lock:
        run.step = run.strategy.rollback()  # where not all ranks hold the same, the run ends: what all shared is kept
        if milestones.saved == run.step:
            return
        started = time.perf_counter()
        stage = checkpoint_in_memory.room_for(12 * sum(p.numel() for p in run.trained.parameters)) if leaving else None
        try:
            state = state_of(run)
            state["adapter"] = consistency.tensors_hash(run.trained.named.items())
            outer, folder = run.strategy.tensors(), stage or root
            checkpoint.write(
                folder, run.step, run.module.model, run.trained, state, outer=outer, manifest=stage is None
            )
        except checkpoint.WRITE_ERRORS as error:
            message = f"{run.world.node}: the checkpoint of step {run.step} could not be written: {error}"
            run.reporter.warn(run.step, message)
            return
        milestones.saved = run.step
        checkpoint.prune(root, run.step, run.config.keep, milestones.best["step"] if milestones.best else None)
        named, took_s = str(root / f"step-{run.step}"), round(time.perf_counter() - started, 3)
        run.reporter.write("checkpoint", step=run.step, folder=named, seconds=took_s, staged=stage is not None)


def state_of(run: Run) -> checkpoint.State:
    """What a run needs beside weights and optimizer to go on."""
    scaler = run.trained.scaler
    state = checkpoint.State(
        math=run.math,
        best=run.milestones.best,
        evaluated=run.milestones.evaluated,
        base=run.milestones.base,
        newest=run.milestones.newest,
        metrics=run.milestones.metrics,
        gains=asdict(run.milestones.gains),
        proven=run.milestones.proven,
        shares=dict(zip(run.balance.names, run.balance.shares, strict=True)),
        speeds=run.balance.speeds,
        total_steps=run.total_steps,
        warm_up=run.warm_up,
        scaler=scaler.state_dict() if scaler else None,
    )
    if run.step_rows and (made := run.step_rows.state(run.step // run.config.steps_per_draw)):
        state["made"] = made
    if local := run.strategy.state():
        state["local_steps"] = local["local_steps"]
    return state


def write_result(run: Run) -> Path:
    """results/RUN/adapter or model (last; with patience the best) and results/RUN/best, as PEFT or transformers loads
    them."""
    target, best = run.config.result_folder / run.config.RESULT, run.config.result_folder / "best"
    saved = early_stop.saved_at(run.milestones.best, run.config) if run.milestones.best else None
    with whole_folder(target) as draft:
        write_weights(draft, run.module.model, run.trained.named)
        run.recipe.export(run, draft)
        add_card(run, draft)
    if saved and saved.is_dir():
        with whole_folder(best) as draft:
            checkpoint.copy_weights(saved, draft)
            run.recipe.export(run, draft)
    else:  # this node was away then, or nothing was measured: what lies there is of a run before
        shutil.rmtree(best, ignore_errors=True)
    return target


def add_card(run: Run, folder: Path) -> None:
    try:
        lost = "".join(f"- {words}\n" for words in left_out_in_words.words_at(run.rows.folder))
        (folder / CARD).write_text(run.recipe.card(run) + (f"\n## What is not in it\n\n{lost}" if lost else ""))
    except Exception as error:  # what is trained is worth more than what is said of it
        message = f"{run.world.node}: the result has no {CARD}: {type(error).__name__}: {error}"
        run.reporter.warn(run.step, message)
