"""A step on a few rows before the first real one: at once, and cut into two unequal parts. Both must give the same
gradients, or no cut of the rows over nodes could. Where they do not, it says why as far as that can be known."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from train.errors import BadInput
from train.models.backends import Batch, to_tensors
from train.recipes.own.file import Functions, call, seed_all
from train.recipes.own.rows import OwnRows

Gradients = dict[str, Tensor]
ROWS, CUT = 5, 2
OTHER_SEEDS = range(2, 8)
"""Several: two may draw the same of a few."""
CLOSE = 1e-4
"""How far gradients may be off, as a part of the whole gradient. Sums in another order differ by some 1e-6, GroupNorm's
too; BatchNorm's by a quarter."""


def check(functions: Functions, model: nn.Module, rows: OwnRows, device: str) -> None:
    """With ROWS rows, or as many as there are, but two. Leaves the model as it was."""
    batch = to_tensors(rows.batch(list(range(min(ROWS, len(rows))))), device)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        _check(functions, model.train(), batch)
    model.train().zero_grad(set_to_none=True)


def _check(functions: Functions, model: nn.Module, batch: Batch) -> None:
    file, cut = functions.file, min(CUT, len(next(iter(batch.values()))) - 1)
    parts = [{n: t[:cut] for n, t in batch.items()}, {n: t[cut:] for n, t in batch.items()}]
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}

    def gradients(batches: list[Batch], seed: int = 1) -> Gradients:
        found: Gradients = call("loss", file, gradients_of, functions.loss_sum, model, batches, seed)
        return found

    whole = gradients([batch])
    drew = has_drawn(1)
    require_all_used(model, whole, file)
    require_stateless(model, before, file)
    if off(whole, gradients([batch]))[0] > CLOSE:
        raise BadInput(
            "recipe: the same rows gave other gradients the second time: it keeps something beside the model's weights",
            f"file: {file}",
            "compute a loss from the weights and its rows alone: no counter, no running mean, no generator of your own",
        )
    if drew and any(off(whole, gradients([batch], seed=seed))[0] > CLOSE for seed in OTHER_SEEDS):
        layers = [n for n, module in model.named_modules() if isinstance(module, _DropoutNd) and module.p]
        which = f" ({layers[0]} is {type(model.get_submodule(layers[0])).__name__})" if layers else ""
        raise BadInput(
            f"recipe: it draws random numbers while it trains{which}: every node would draw others",
            f"file: {file}",
            "leave dropout out: weight_decay, or noise that rows already has, does its work"
            if layers
            else "draw in rows, once for all: a loss follows from the weights and its row alone; no dropout, no noise",
        )
    error, weight = off(whole, gradients(parts))
    if error > CLOSE:
        raise BadInput(
            f"recipe: a row's loss depends on the rows beside it: cut in two, the same rows give other gradients, "
            f"most in {weight} (off by {error:.1%})",
            f"file: {file}",
            "compute each row's loss from that row alone: no mean, norm or comparison over the batch",
        )
    with torch.no_grad():
        call("metrics", file, functions.metric_sums, model.eval(), batch)


def require_stateless(model: nn.Module, before: Batch, file: Path) -> None:
    changed = [n for n, b in model.named_buffers() if not torch.equal(b, before[n])]
    norms = {n or "the model": module for n, module in model.named_modules() if isinstance(module, _BatchNorm)}
    if norms and (changed or not all(norm.track_running_stats for norm in norms.values())):
        raise BadInput(
            f"recipe: {next(iter(norms))} is BatchNorm: it computes with the rows beside a row, "
            "and every node has others",
            f"file: {file}",
            "use GroupNorm or LayerNorm in its place",
        )
    if changed:
        raise BadInput(
            f"recipe: the buffer {changed[0]} changes while it trains: each node would have a state of its own",
            f"file: {file}",
            "keep only weights that are trained, and buffers that stay as they are",
        )


def gradients_of(
    loss_sum: Callable[[nn.Module, Batch], Tensor], model: nn.Module, batches: list[Batch], seed: int
) -> Gradients:
    model.zero_grad(set_to_none=True)
    seed_all(seed)
    for batch in batches:
        total = loss_sum(model, {name: values.clone() for name, values in batch.items()})
        if not total.requires_grad:
            raise BadInput(
                "recipe: loss does not depend on the model's weights", fix="no .item(), .detach() or no_grad"
            )
        if not torch.isfinite(total):
            raise BadInput(
                f"recipe: loss gives {total.item()} on the first rows", fix="look at its logarithms, divisions"
            )
        total.backward()
    return {n: p.grad.double() for n, p in model.named_parameters() if p.requires_grad and p.grad is not None}


def has_drawn(seed: int) -> bool:
    """Whether random numbers were drawn since they were seeded."""

    def state() -> list[Any]:
        cuda = [torch.cuda.get_rng_state().tolist()] if torch.cuda.is_initialized() else []
        return [torch.get_rng_state().tolist(), *cuda, random.getstate(), str(np.random.get_state())]

    now = state()
    seed_all(seed)
    return now != state()


def require_all_used(model: nn.Module, found: Gradients, file: Path) -> None:
    unused = [name for name, p in model.named_parameters() if p.requires_grad and name not in found]
    if unused:
        raise BadInput(
            f"recipe: no loss reaches {' and '.join(unused[:3])}: it would never be trained",
            f"file: {file}",
            "use it in loss, leave it out of the model, or freeze it: requires_grad_(False)",
        )


def off(one: Gradients, other: Gradients) -> tuple[float, str]:
    """The largest difference of a weight's gradients, as a part of the whole gradient, and whose it is."""
    whole = float(torch.stack([g.square().sum() for g in one.values()]).sum().sqrt()) or 1.0
    differences = {name: float((g - other[name]).norm()) / whole if name in other else 1.0 for name, g in one.items()}
    worst = max(differences, key=lambda name: differences[name])
    return differences[worst], worst
