"""The training loop. `train` is the page to read; what stands below it are its parts, in the order of their use.

For fixed data, seed and settings the losses are the same on any cluster: the rows of a step follow from the step alone,
each rank takes a slice of them, and every gradient is divided by the target tokens of the whole step. `sync: local`
alone is different: there a rank takes inner steps by its own gradient until the round ends (parallel/diloco.py).

The loop knows neither what a row is nor how gradients are combined: that is for `rows` and `module` (the recipe), and
for the strategy.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch.profiler import record_function

from train.data.mix_data_sets import parts_of, rows_of_step
from train.data.rows import Rows
from train.engine import kept_decisions
from train.engine.between_steps import Milestones, between_steps, make_up, saves_after
from train.engine.check_step import require_every_row, require_every_sample, require_finite
from train.engine.early_stop import is_over
from train.engine.make_optimizer import learning_rate
from train.engine.micro_batch_search import with_less_each_time
from train.engine.profiler import Profile
from train.engine.reporter import Reporter
from train.engine.rows_ahead import Ahead, Made, arrays_of
from train.engine.split_last_rows import Dealt, dealt, row_tokens
from train.engine.step_event import Fed, Ranks, RankStep, seen_by, step_event
from train.models.backends import LossModule, to_tensors
from train.models.optimizer_step import Trained
from train.parallel.process_group import World
from train.parallel.rebalance import Balance
from train.parallel.row_takers import RowTakers
from train.parallel.strategy import StepTiming, Strategy
from train.plan.settings.read_settings import RunConfig
from train.plan.speed.row_split import spans, split_rows
from train.recipes import Recipe, making
from train.runlog.trace import UPDATE

if TYPE_CHECKING:
    from train.data.rows import PackedRows
    from train.recipes import StepRows


@dataclass(kw_only=True)
class Run:
    """Everything that a step needs: first what stays as it is, then the parts that change, each with who changes it."""

    config: RunConfig
    recipe: Recipe
    world: World
    workers: RowTakers
    device: str
    math: dict[str, Any]
    """What decides the loss curve: settings, hashes of base and rows."""
    trains_on: dict[str, str]
    """The hashes of base and rows that `math` has."""
    built: dict[str, Any]
    """What its model and optimizer were made by: only for the same can they be kept while the group changes."""
    rows: Rows
    held_out: Rows
    module: LossModule
    total_steps: int
    reporter: Reporter

    strategy: Strategy
    trained: Trained
    """Weights and optimizer; changed by the strategy."""
    balance: Balance
    """Speeds and shares; changed by itself, by what it learns of each step."""
    micro_batch: int
    """Rows at a time; changed by `compute`, after an out-of-memory."""
    micro_batch_name: str
    """The name under which the micro-batch is kept for a restart."""
    position: int = 0
    """Where this rank's rows of the step begin in the stream of all rows; changed by `train`."""
    ahead: Ahead = field(default_factory=Ahead)
    """This rank's rows of the next step, made meanwhile; changed by `compute` and `look_ahead`."""
    dealt: Dealt | None = None
    """Who computes which samples of this step's last rows; changed by `train`."""
    step_rows: StepRows | None = None
    """What this step trains on, where the recipe makes it with the model; changed by `rows_due`."""
    warm_up: int = 0
    """Steps until the peak rate: that with which the run began."""
    step: int = 0
    """Finished steps; changed by `update`, and set back by a rollback."""
    milestones: Milestones = field(default_factory=Milestones)
    """What is proven, evaluated and saved; changed by between_steps.py."""

    @property
    def due(self) -> Rows | StepRows:
        """What the rows of this step are taken from."""
        return self.step_rows or self.rows


def train(run: Run) -> None:
    config, world, strategy = run.config, run.world, run.strategy
    profile = Profile(run)
    make_up(run)
    since = time.perf_counter()
    while not is_over(run):
        world.require_group()
        if profile.begin(run.step + 1):
            since = time.perf_counter()
        slices = spans(split_rows(config.rows_per_step, run.balance.shares))
        rows = rows_due(run, slices)
        run.dealt = dealt(run, rows, slices)
        whole = [int(run.due.targets[rows[a:b]].sum()) for a, b in slices]
        targets = run.dealt.targets if run.dealt else whole
        first, end = slices[run.workers.of(world.rank)]
        rate = set_learning_rate(run)

        run.position = run.step * config.rows_per_step + first
        # Each rank divides its summed loss by the target tokens of the whole step, not by its own: then the sum of all
        # ranks' gradients is the gradient of the step's mean loss, however its rows and padding were shared.
        timing, fed = compute(run, rows[first:end], weight=1 / max(1, strategy.divisor(targets, world.rank)))
        norm = run.trained.gradient_norm()
        timing = with_making(timing, run.step_rows)
        timing = strategy.exchange(run.step + 1, timing, norm, targets, saving=saves_after(run, run.step + 1))
        now = time.perf_counter()
        seen = tuple(run.module.take_seen())
        ranks = observe(run, RankStep(timing, fed, norm, now - since, gpu_gb(run.device), seen))
        facts: dict[str, Any] = {"step": run.step + 1, "lr": rate, "targets": targets, "sync": strategy.kind}
        facts["row_tokens"] = row_tokens(run)
        event = step_event(ranks, run.workers, run.balance, **facts)
        event |= run.step_rows.told_of(seen_by(ranks)) if run.step_rows else {}
        since = now
        report(run, event)  # before the update, so that no trained row goes unlogged
        update(run, event["grad_norm"])
        decide(run, event)
        recorded = profile.end(run.step)
        if between_steps(run) or recorded:
            since = time.perf_counter()  # a step's seconds are its own
    profile.conclude(run.step)


def rows_due(run: Run, slices: list[tuple[int, int]]) -> list[int]:
    """The rows of the next step: of the data, or what is made of it now, and then is `run.due`."""
    if not (recipe := making(run.recipe)):
        return drawn_rows(run, run.step)
    run.step_rows = recipe.prepare_step(run, drawn_rows(run, run.step), slices)
    return list(range(run.config.rows_per_step))


def drawn_rows(run: Run, step: int) -> list[int]:
    """The rows of the data for step `step`, counted from 0."""
    config, draw = run.config, step // run.config.steps_per_draw
    parts, rows_per_step = parts_of(run.rows), config.drawn_per_step
    return rows_of_step(draw, rows=len(run.rows), parts=parts, seed=config.seed, rows_per_step=rows_per_step)


def set_learning_rate(run: Run) -> float:
    peak, kind = run.config.learning_rate, run.config.schedule
    rate = learning_rate(run.step, peak=peak, kind=kind, warmup_steps=run.warm_up, total_steps=run.total_steps)
    run.trained.set_rate(rate)
    return rate


def compute(run: Run, mine: list[int], weight: float) -> tuple[StepTiming, Fed]:
    """Forward and backward of this rank's rows; less on the card after an out-of-memory."""

    def gradients() -> tuple[StepTiming, Fed]:
        run.module.take_seen()  # of a search for a micro-batch, or of what ran out of memory
        arrays, fed = take(run, mine)
        batches = [to_tensors(batch, run.device) for batch in arrays]
        return run.strategy.gradients(batches, weight * run.trained.scale), fed

    return with_less_each_time(run, gradients, others_wait=lambda: run.strategy.interrupted_exchange)


def with_making(timing: StepTiming, made: StepRows | None) -> StepTiming:
    """A machine's speed is that of both halves of a step."""
    if not made:
        return timing
    both_s, waited_s = timing.compute_s + made.made_s, timing.blocked_s + made.waited_s
    return replace(timing, compute_s=both_s, blocked_s=waited_s)


def take(run: Run, mine: list[int]) -> Made:
    """What this rank is fed of its slice of the step, and the books on it; from here on the next step's is made."""
    whole = mine[:-1] if run.dealt else mine
    made = run.ahead.take(lambda: made_of(run, whole, run.position), (run.position, len(whole), run.micro_batch))
    look_ahead(run, len(whole))
    if not run.dealt:
        return made
    return run.dealt.beside(made, cast("PackedRows", run.rows), mine, run.workers.of(run.world.rank))


def made_of(run: Run, mine: list[int], first: int) -> Made:
    """Some rows, the first of which has this place in the stream of all rows."""
    fed = Fed(micro_batch=run.micro_batch, first=first)
    return arrays_of(run.due, mine, fed, draws=run.config.draws)


def look_ahead(run: Run, count: int) -> None:
    """Begins with the rows of the next step, where nobody has to make them with the model."""
    if making(run.recipe):
        return
    first = run.position + run.config.rows_per_step
    at = run.position - run.step * run.config.rows_per_step

    def make() -> Made:
        return made_of(run, drawn_rows(run, step)[at : at + count], first)

    step = run.step + 1
    run.ahead.begin(make, (first, count, run.micro_batch))


def gpu_gb(device: str) -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if device != "cpu" else 0.0


def observe(run: Run, mine: RankStep) -> Ranks:
    """What all ranks did in this step, the same on every rank; it must be all rows, and finite."""
    ranks = [RankStep.of(numbers) for numbers in run.world.numbers(mine.numbers())]
    kept = f"the last proven checkpoint is kept: {run.config.checkpoint_folder()}"
    require_every_row(ranks, run.workers, run.step + 1, run.config.rows_per_step, kept)
    if run.dealt:
        require_every_sample(ranks, run.workers, run.dealt.checksum, run.step + 1, kept)
    # A scale below 1 helps no small gradient: what overflows still is infinite itself, and would be skipped for ever.
    require_finite(ranks, run.workers.names, scaled=run.trained.scaler is not None and run.trained.scale >= 1)
    timings = run.strategy.observe([rank.timing for rank in ranks])
    return [replace(rank, timing=timing) for rank, timing in zip(ranks, timings, strict=True)]


def report(run: Run, event: dict[str, Any]) -> None:
    with run.trained.lock:  # a process that is leaving may have rolled back to where the round began
        run.reporter.step(event)


def update(run: Run, norm: float) -> None:
    with run.trained.changing(), record_function(UPDATE):
        run.strategy.update(run.step + 1, norm)
        run.trained.optimizer.zero_grad(set_to_none=True)
        if run.device != "cpu":
            torch.cuda.synchronize()  # another thread may save as soon as the lock is free
        run.step += 1


def decide(run: Run, event: dict[str, Any]) -> None:
    """How the next steps are done, from figures that are the same on all ranks. Shares stay while two kinds of exchange
    are compared, to keep the comparison fair."""
    if choice := run.strategy.decide():
        if choice.event:
            run.reporter.write("local", step=run.step, **choice.event)
        if run.world.writes:
            kept_decisions.keep(run.config, **choice.decided)
        run.reporter.say(choice.message)
    change = run.balance.learn(run.workers.seen(trained_by(event)), hold=run.strategy.comparing)
    if change:
        run.strategy.forget_timings()
        run.reporter.write("balance", step=run.step, shares=change.shares, speeds=change.speeds, reason=change.reason)
        rows = "  ".join(f"{name} {count}" for name, count in change.shares.items())
        run.reporter.say(f"shares from step {run.step + 1}: {rows} ({change.reason})")


def trained_by(event: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """What each node did, without the answers: who makes those follows from who is free, and is no matter of shares."""
    made_s = event["rollout"]["generate_s"] if "rollout" in event else {}
    nodes = event["nodes"].items()
    return {name: node | {"compute_s": node["compute_s"] - made_s.get(name, 0.0)} for name, node in nodes}
