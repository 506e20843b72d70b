"""The model and the optimizer of a run, in its group: loaded for it, or kept from the group before."""

from __future__ import annotations

import gc
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from train import recipes
from train.engine.before_loading import Layout, Settled
from train.engine.loop import Run
from train.engine.make_optimizer import make_optimizer
from train.engine.reporter import doing
from train.errors import PeerFailed
from train.models.backends import LossModule
from train.models.optimizer_step import Trained, make_scaler
from train.models.weights import trained_weights
from train.parallel.pipeline import Stage
from train.parallel.process_group import World
from train.plan.settings.read_settings import RunConfig, SftConfig
from train.recipes import Recipe
from train.recipes.sft import recipe as sft

ON_PROCESSOR = "steps on the processor"


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded:
    module: LossModule
    trained: Trained
    stage: Stage | None
    """This rank's layers, where the model is cut."""
    built: dict[str, Any]
    """What model and optimizer were made by."""


def load(settled: Settled, layout: Layout, row_length: int) -> Loaded:
    config, world, precision = settled.config, settled.world, settled.decisions.precision
    module, stage = build(settled, layout, row_length)
    world.start_group(nccl=layout.nccl)
    trained = make_trained(config, settled.recipe, module, precision, settled.device, on_cpu=layout.on_processor)
    freeze(world)
    return Loaded(module=module, trained=trained, stage=stage, built=made_by(settled, layout))


def keep_loaded(settled: Settled, layout: Layout, kept: Run) -> Loaded:
    built = made_by(settled, layout)
    require_kept(built, kept.built)
    settled.world.start_group(nccl=layout.nccl)
    return Loaded(module=kept.module, trained=kept.trained, stage=None, built=built)


def made_by(settled: Settled, layout: Layout) -> dict[str, Any]:
    return settled.decisions.as_dict() | {"device": settled.device, ON_PROCESSOR: layout.on_processor}


class NotKeptError(PeerFailed):
    """What this process keeps does not fit the new group: it must start again."""


def require_kept(built: Mapping[str, object], before: Mapping[str, object]) -> None:
    if changed := [name for name, value in built.items() if before[name] != value]:
        raise NotKeptError(f"{', '.join(changed)}: another one in this group, and the process begins anew")


def build(settled: Settled, layout: Layout, row_length: int) -> tuple[LossModule, Stage | None]:
    """The model, or this rank's layers of it; with it, what a recipe has beside the run."""
    config, recipe, world, device = settled.config, settled.recipe, settled.world, settled.device
    decisions, base, workers = settled.decisions, settled.base, layout.workers
    if (layers := workers.layers[world.rank]) is None:
        whole = recipe.build(config, decisions, base, device, row_length)
        if maker := recipes.making(recipe):
            maker.ready(partial(doing, config, world))
        return whole, None
    module = sft.build(cast(SftConfig, config), decisions, base, device, row_length, layers=layers)
    stage = Stage(module.model, workers.group(world.rank), world.rank, decisions.precision, device)
    return LossModule(stage.model, stage.loss_sum), stage


def make_trained(
    config: RunConfig, recipe: Recipe, module: LossModule, precision: str, device: str, *, on_cpu: bool
) -> Trained:
    """The trained weights, sorted by name, and their optimizer: all ranks and files have the weights in one order."""
    named = dict(sorted(trained_weights(module.model).items()))
    optimizer = make_optimizer(config, recipe.optimized(config, named), on_cpu=on_cpu and config.sync != "local")
    return Trained(named, optimizer, scaler=make_scaler(precision, device), grad_clip=config.grad_clip)


def freeze(world: World) -> None:
    """A process that may stay keeps libraries and model: where it leaves a group, only what that has made is looked
    through for what hangs on the weights."""
    if world.orders:
        gc.collect()
        gc.freeze()
