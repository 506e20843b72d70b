"""What is found by trial once a model is loaded: how gradients travel, and what fills a card's memory, rows at a time
first and then layers of a base that is streamed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from train.engine import kept_decisions, micro_batch_search, pipe_members
from train.engine.before_loading import Layout, Settled
from train.engine.build_or_keep_model import Loaded
from train.engine.loop import Run
from train.models.backends import LossModule
from train.models.optimizer_step import Trained
from train.models.stream import stream_of
from train.parallel import gradient_exchange
from train.plan.placement.micro_batch import on_cpu
from train.plan.settings.read_settings import RunConfig
from train.recipes import Recipe


@dataclass(frozen=True, kw_only=True, slots=True)
class MicroBatch:
    rows: int
    name: str
    """The name under which it is kept for a restart."""
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuned:
    wire: str
    micro_batch: MicroBatch
    why: list[str]


def tune(settled: Settled, layout: Layout, loaded: Loaded, row_length: int, kept: Run | None) -> Tuned:
    wire, why_wire = gradient_exchange.choose_wire(settled.config.wire, settled.world, loaded.trained.parameters)
    micro_batch = micro_batch_of(settled, layout, loaded, row_length, kept)
    why_held = [] if kept else hold_layers(settled, loaded, row_length, micro_batch)
    why = [f"micro-batch {micro_batch.rows}: {micro_batch.why}", *why_held, f"wire {wire}: {why_wire}"]
    return Tuned(wire=wire, micro_batch=micro_batch, why=why)


def micro_batch_of(settled: Settled, layout: Layout, loaded: Loaded, row_length: int, kept: Run | None) -> MicroBatch:
    """Rows at a time: alike in a pipe, as this run has found it, or by trial."""
    config, world, before = settled.config, settled.world, settled.decided_before
    if layout.workers.cut:
        rows, why = pipe_members.micro_batch(config, world, layout.workers, row_length, before)
        return MicroBatch(rows=rows, name="pipe_micro_batch", why=why)
    name = micro_batch_name(settled, row_length)
    if name in before:
        return MicroBatch(rows=int(before[name]), name=name, why="as it was found or fell to in this run")
    if kept:
        return MicroBatch(rows=kept.micro_batch, name=name, why="as before")
    module, trained = loaded.module, loaded.trained
    rows, why = choose_micro_batch(config, settled.recipe, module, trained, row_length, world.size)
    return MicroBatch(rows=rows, name=name, why=why)


def choose_micro_batch(  # noqa: PLR0917 - what a step is made of
    config: RunConfig, recipe: Recipe, module: LossModule, trained: Trained, row_length: int, ranks: int
) -> tuple[int, str]:
    if config.micro_batch is not None:
        return config.micro_batch, "as set"
    if device_of(trained) == "cpu":
        return on_cpu(row_length * config.lines_of_row, config.ROW_UNIT)
    trial, ceiling = trial_of(config, recipe, module, trained, row_length)
    even = -(-config.rows_per_step // ranks)  # beyond it, room on the card is better used for layers
    most = even if stream_of(module.model) else config.rows_per_step
    return micro_batch_search.find(trial, ceiling_bytes=ceiling, most=most)


def hold_layers(settled: Settled, loaded: Loaded, row_length: int, micro_batch: MicroBatch) -> list[str]:
    """Keeps layers of a streamed base on the card, as far as they fit; why so many."""
    out_of_memory_before = micro_batch.name + kept_decisions.ALL_STREAMED in settled.decided_before
    if not settled.may_hold or out_of_memory_before or not (stream := stream_of(loaded.module.model)):
        return []
    trial, ceiling = trial_of(settled.config, settled.recipe, loaded.module, loaded.trained, row_length)
    held = stream.hold(micro_batch_search.room(trial, micro_batch.rows, ceiling_bytes=ceiling))
    return [
        f"{held} of {len(stream.layers)} layers stay on the card: they fit beside {micro_batch.rows} rows at a time"
    ]


def trial_of(
    config: RunConfig, recipe: Recipe, module: LossModule, trained: Trained, row_length: int
) -> tuple[micro_batch_search.Trial, int]:
    device = device_of(trained)
    full_rows = partial(recipe.full_rows, length=row_length, vocabulary=2, device=device)
    return micro_batch_search.gpu_trial(module, trained, full_rows, device=device, ceiling=config.memory_ceiling)


def device_of(trained: Trained) -> str:
    return str(trained.parameters[0].device)


def micro_batch_name(settled: Settled, row_length: int) -> str:
    config, world, device = settled.config, settled.world, settled.device
    card = device if device == "cpu" else torch.cuda.get_device_name(device)
    on = (settled.decisions.gradient_checkpointing, config.memory_ceiling, config.micro_batch or "auto")
    rows = f"{config.rows_per_step}x{row_length}"
    return f"{kept_decisions.MICRO_BATCH}{world.node}:{world.local_rank} {card} {rows} {' '.join(map(str, on))}"
