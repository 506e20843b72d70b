"""What is trained, by the names that PEFT gives it on disk."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Required, TypedDict

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from train.errors import BadInput
from train.models import lora_init as first_weights

ADAPTER, WEIGHTS = "adapter_model.safetensors", "model.safetensors"
MAGNITUDE = "lora_magnitude_vector"
"""DoRA's own weight, which is a layer in the model and a bare number on disk."""
SCORE = "score"
"""The head of a reward model, by the name that transformers gives it."""
Named = dict[str, nn.Parameter]


class WeightGroup(TypedDict, total=False):
    """Weights that the optimizer treats alike, with what is not as it has it for all."""

    params: Required[list[nn.Parameter]]
    weight_decay: float
    betas: tuple[float, float]
    muon: bool
    faster: float
    """How many times the run's rate they learn at."""


def trained_weights(model: nn.Module) -> Named:
    """What is trained, under the names that PEFT gives it on disk."""
    named = {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}
    return {name.replace(f"{MAGNITUDE}.weight", MAGNITUDE): p for name, p in named.items()}


def shrunk_and_kept(named: Named, decay: float, *, but: tuple[str, ...] = ()) -> tuple[WeightGroup, WeightGroup]:
    """Weight decay is for matrices, convolutions, embeddings: norms and biases are not shrunk, nor what `but` names."""
    shrunk = {name: p for name, p in named.items() if p.dim() > 1 and not name.endswith(but)}
    kept = [p for name, p in named.items() if name not in shrunk]
    return {"params": list(shrunk.values()), "weight_decay": decay}, {"params": kept, "weight_decay": 0.0}


def write_weights(folder: Path, model: nn.Module, named: Named) -> None:
    """The adapter (or the full model) as PEFT and transformers read it. By the names that the run has: while PEFT is
    disabled, as for an evaluation of the base, the model has no weights that are trained."""
    tensors = {name: p.detach().cpu().contiguous() for name, p in named.items()}
    config: Any = getattr(model, "peft_config", {}).get("default", getattr(model, "config", None))
    if is_adapter := hasattr(model, "peft_config"):
        tensors, config = first_weights.as_plain(model, tensors, config)
    save_file(tensors, folder / (ADAPTER if is_adapter else WEIGHTS), metadata={"format": "pt"})
    if hasattr(config, "save_pretrained"):  # a model of your own need not have one
        config.save_pretrained(folder)
    if (file := folder / "adapter_config.json").exists():
        facts = json.loads(file.read_text())  # PEFT keeps the targets as a set: the same bytes on every node
        for name in ("target_modules", "target_parameters"):
            targets = facts.get(name)
            facts[name] = sorted(targets) if isinstance(targets, list) else targets
        file.write_text(json.dumps(facts, indent=2, sort_keys=True))


def as_saved(saved: Tensor, _: Tensor) -> Tensor:
    return saved


def take_weights(file: Path, named: Named, own: Callable[[Tensor, Tensor], Tensor] = as_saved) -> None:
    """The trained weights become those of the file, which must have each of them and no other. `own`: what of a saved
    weight is a trained one."""
    weights = {name: own(weight, named[name]) if name in named else weight for name, weight in load_file(file).items()}
    shapes = {name: weight.shape for name, weight in weights.items()}
    if shapes != {name: parameter.shape for name, parameter in named.items()}:
        raise BadInput(f"{file.parent} holds other weights than this model trains", f"file: {file}")
    with torch.no_grad():
        for name, parameter in named.items():
            parameter.copy_(weights[name])


def write_whole(folder: Path, model: nn.Module, named: Named) -> None:
    """All tensors of a model whose trained ones are in the folder: its buffers and what is frozen as well."""
    saved = load_file(folder / WEIGHTS)
    trained = {id(weight): saved[name] for name, weight in named.items()}
    state = model.state_dict(keep_vars=True)
    tensors = {name: trained.get(id(t), t).detach().cpu().clone().contiguous() for name, t in state.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
