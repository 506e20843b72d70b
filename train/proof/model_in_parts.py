"""A family is trusted to be cut by proof: a miniature of the model's own config is computed whole and in three parts,
and the losses and gradients must be the same. It takes about a second, before anything large is loaded."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from train.errors import BadInput
from train.models import hf
from train.models.backends import Batch, ModelSpec
from train.models.weights import trained_weights
from train.models.wrapper import text_of
from train.proof import miniature, reasons
from train.proof.reasons import NotExactError

TOLERANCE = 1e-5


def prove(config: Any) -> None:
    """Proves that this model can be cut; BadInput where the cut computes something else."""
    with tempfile.TemporaryDirectory() as folder, torch.random.fork_rng(devices=[]):
        try:
            miniature.write(config, Path(folder))
            require(folder)
        except Exception as error:  # a family may fail in any way
            raise BadInput(
                f"pipes: a {config.model_type} model cannot be cut: {reasons.of('cut', error)}",
                fix="use pipes: off, or a smaller model",
            ) from error


def require(folder: str) -> None:
    """The miniature in this folder must compute the same when it is cut."""
    off = difference(folder)
    if not off <= TOLERANCE:
        raise NotExactError(f"in parts its loss or gradient is off by {off:.1e}")


def difference(folder: str) -> float:
    """The largest difference, of the loss and of all gradients, relative to the whole model's."""
    spec = ModelSpec(folder=folder, lora_r=2, max_seq_length=miniature.POSITIONS)
    layers = text_of(hf.config_of(spec.folder)).num_hidden_layers
    bounds = ((0, 1), (1, layers - 1), (layers - 1, layers))
    whole, parts = hf.build(spec), [hf.build(replace(spec, layers=own)) for own in bounds]
    ids = torch.randint(miniature.VOCABULARY, (2, 24), generator=torch.Generator().manual_seed(1))
    places = torch.cat([torch.arange(10), torch.arange(14)]).expand(2, 24)
    batch = {"input_ids": ids, "labels": ids, "position_ids": places}
    loss = hf.loss_sum(whole, batch)
    loss.backward()
    found = step(parts, batch)
    wanted = gradients(whole)
    largest: float = max(float(gradient.abs().max()) for gradient in wanted.values())
    own = {name: gradient for part in parts for name, gradient in gradients(part).items()}
    if own.keys() != wanted.keys():
        return float("inf")
    off: float = max(float((own[name] - wanted[name]).abs().max()) for name in wanted) / largest
    return max(off, abs(found / float(loss.detach()) - 1))


def step(parts: list[nn.Module], batch: Batch) -> float:
    """Forward through all parts and back, in one process; the loss."""
    hidden: Tensor | None = None
    passed = []
    for model in parts:
        whole = hf.whole_of(model)
        out = whole.part.states(whole.get_decoder(), batch, hidden)
        if whole.part.ends:
            out = hf.loss_of_states(model, out, batch)
        passed.append((hidden, out))
        hidden = out.detach().requires_grad_()
    gradient: Tensor | None = None
    for came, out in reversed(passed):
        out.backward(gradient)
        gradient = came.grad if came is not None else None
    return float(passed[-1][1].detach())


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: p.grad for name, p in trained_weights(model).items() if p.grad is not None}
