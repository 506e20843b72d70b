"""Setting a run up, in an order that matters: facts are exchanged and choices made first, the model is built before the
process group, and what is to be trained is proven to be the same everywhere before the first step.

    before_loading.py  what was decided, what is trained on, and who computes it
    build_or_keep_model.py    model and optimizer, new or kept from the group before
    after_loading.py   how gradients travel, rows at a time, and layers of a streamed base on the card
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TextIO

import torch

from train import recipes
from train.data import left_out_in_words, mix_data_sets
from train.engine import bring_up_to_date, consistency, early_stop, kept_decisions
from train.engine.after_loading import Tuned, device_of, tune
from train.engine.before_loading import Data, Layout, Settled, agree, arrange, read_rows, say, settle
from train.engine.build_or_keep_model import ON_PROCESSOR, Loaded, keep_loaded, load
from train.engine.loop import Run
from train.engine.reporter import Reporter
from train.engine.split_last_rows import may_deal
from train.models import backends, dropout
from train.parallel import gradient_exchange
from train.parallel.diloco import DiLoCo
from train.parallel.pipeline import PipeSync
from train.parallel.process_group import World
from train.parallel.rebalance import Balance
from train.parallel.strategy import Strategy
from train.plan.settings.read_settings import RunConfig
from train.plan.speed.row_split import parse_speeds
from train.recipes import Recipe
from train.runlog import paths
from train.runlog.events import EventLog, ProgressLine


def set_up(
    config: RunConfig,
    world: World,
    out: TextIO | None,
    recipe: Recipe | None = None,
    kept: Run | None = None,
    *,
    waits: bool = False,
) -> Run:
    """`kept`: of this process's last group, whose rows, model and optimizer it keeps. All ranks exchange the same.
    `waits`: alone, for a group that it will be in; nothing begins."""
    recipe = recipe or (kept.recipe if kept else recipes.of(config))
    settled = settle(config, recipe, world, recipe.start(config, partial(say, out)))
    if settled.device != "cpu":
        torch.cuda.set_device(settled.device)
    backends.get(settled.decisions.backend)  # unsloth must come before transformers, which preparing rows may import
    data = Data.of_run(kept) if kept else read_rows(settled, out)
    identity, names = agree(settled, data)
    layout = arrange(settled, names, data, waits=waits)
    length = data.rows.row_length
    loaded = keep_loaded(settled, layout, kept) if kept else load(settled, layout, length)
    tuned = tune(settled, layout, loaded, length, kept)
    run = assemble(settled, data, layout, loaded, tuned, identity=identity, out=out)
    if not waits:
        begin(run, settled, tuned.wire, [*settled.why_placed, *layout.why, *tuned.why], kept)
    return run


def assemble(
    settled: Settled, data: Data, layout: Layout, loaded: Loaded, tuned: Tuned, *, identity: dict[str, object],
    out: TextIO | None,
) -> Run:  # fmt: skip
    config, world, workers = settled.config, settled.world, layout.workers
    total_steps = config.steps_over(mix_data_sets.epoch_of(data.rows))
    strategy = make_strategy(settled, layout, loaded, tuned.wire, total_steps)
    return Run(
        config=config,
        recipe=settled.recipe,
        world=world,
        workers=workers,
        device=settled.device,
        math=identity | consistency.same_first_weights(world, loaded.module.model),
        built=loaded.built,
        trains_on=data.hashes,
        rows=data.rows,
        held_out=data.held_out,
        module=loaded.module,
        total_steps=total_steps,
        warm_up=config.warm_up(total_steps),
        reporter=make_reporter(config, world, out, total_steps),
        strategy=strategy,
        trained=loaded.trained,
        balance=make_balance(config, workers.labels, deals=may_deal(config, data.rows, workers)),
        micro_batch=tuned.micro_batch.rows,
        micro_batch_name=tuned.micro_batch.name,
    )


def make_strategy(settled: Settled, layout: Layout, loaded: Loaded, wire: str, total_steps: int) -> Strategy:
    config, module, trained = settled.config, loaded.module, loaded.trained
    if layout.workers.cut:
        return PipeSync(loaded.stage, module, trained, layout.workers, wire)
    if config.sync != "local":
        return gradient_exchange.ExactSync(config.sync, wire, module, trained, settled.world)
    return DiLoCo(trained, module, settled.world, device_of(trained), config, total_steps=total_steps)


def make_balance(config: RunConfig, names: list[str], *, deals: bool) -> Balance:
    speeds, moves = parse_speeds(config.speeds), config.balance == "auto"
    return Balance(names, config.rows_per_step, known=speeds, moves=moves, fixed=config.shares, deals=deals)


def make_reporter(config: RunConfig, world: World, out: TextIO | None, total_steps: int) -> Reporter:
    log = EventLog(config.log_folder / paths.EVENTS if world.writes else None)
    return Reporter(log, ProgressLine(out, total_steps))


def begin(run: Run, settled: Settled, wire: str, why: list[str], kept: Run | None) -> None:
    """Begins at the step where the run resumes, with what was decided kept and announced."""
    micro_batches = micro_batches_of_node(run)
    why_start = bring_up_to_date.bring_up_to_date(run, kept)
    if run.world.speaks and run.config.tensorboard:
        run.reporter.open_board(run.config, run.step)
    if run.world.writes:
        measured = {"wire": wire} if run.world.size > 1 else {}
        measured |= {"cut_proven": "true"} if run.workers.cut else {}
        measured |= micro_batches | {kept_decisions.STEPPING: kept_decisions.stepping(run.built[ON_PROCESSOR])}
        kept_decisions.keep(run.config, **settled.decisions.as_dict(), **measured)
    reasons = [*reasons_of(run, settled, why), run.balance.why, why_start]
    announce(run, reasons, settled.decisions.as_dict() | {"wire": wire})


def micro_batches_of_node(run: Run) -> dict[str, str]:
    """What the processes of this node have found by trial; one of them keeps it for all."""
    by_trial = not run.workers.cut and run.config.micro_batch is None and run.device != "cpu"
    by_rank = run.world.gather({run.micro_batch_name: str(run.micro_batch)} if by_trial else {})
    of_node = f"{kept_decisions.MICRO_BATCH}{run.world.node}:"
    return {name: rows for found in by_rank for name, rows in found.items() if name.startswith(of_node)}


def reasons_of(run: Run, settled: Settled, why: list[str]) -> list[str]:
    config, decisions = run.config, settled.decisions
    sync_name = run.strategy.kind if run.workers.cut else config.sync
    decided_now = decisions.reasons
    if settled.why_decided:
        decided_now = [f"{what}: {reason}" for what, reason in decisions.whys.items() if reason]
    reasons = [*settled.why_decided, *decided_now, *why, f"sync {sync_name}: {run.strategy.why}"]
    reasons += [reason for reason in (config.rate_reason, early_stop.why(config, run.total_steps)) if reason]
    reasons += config.length_reasons(mix_data_sets.epoch_of(run.rows))
    return [*reasons, *dropout.why(run.module.model), *left_out_in_words.words_at(run.rows.folder)]


def announce(run: Run, reasons: list[str], decisions: Mapping[str, str]) -> None:
    config, names = run.config, list(run.workers.names)
    weights = sum(p.numel() for p in run.trained.parameters)
    run.reporter.write(
        "start",
        run=config.run,
        step=run.step,
        total_steps=run.total_steps,
        rows_per_step=config.rows_per_step,
        rows=len(run.rows),
        nodes=names,
        weights=weights,
        decisions=decisions,
        identity=run.math,
        reasons=reasons,
    )
    run.reporter.say(
        f"{config.run}: {config.subject} {weights / 1e6:.2f} M weights · "
        f"{config.rows_per_step} rows a step · {len(run.rows)} rows · {run.total_steps} steps · {', '.join(names)}"
    )
    for reason in reasons:
        run.reporter.say(f"  {reason}")
