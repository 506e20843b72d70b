"""What is trained, and what the optimizer knows of it, by the names that PEFT gives it on disk."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
Numbers = dict[str, float]
"""What an optimizer knows of a weight that is no tensor, by "WEIGHT|KIND"."""


class WeightGroup(TypedDict, total=False):
    """Weights that the optimizer treats alike, with what is not as it has it for all."""

    params: Required[list[nn.Parameter]]
    weight_decay: float
    betas: tuple[float, float]
    muon: bool
    faster: float
    """How many times the run's rate they learn at."""


class Trained:
    """The trained weights with their optimizer; nothing else changes them while a run trains."""

    def __init__(self, named: Named, optimizer: Any, *, scaler: Any = None, grad_clip: float = 0.0) -> None:
        self.named, self.optimizer, self.grad_clip = named, optimizer, grad_clip
        self.parameters = list(named.values())
        self.scaler = scaler
        """torch's GradScaler for fp16, else None."""
        self.lock = threading.RLock()
        """Held while weights change and while they are saved: a checkpoint never sees half an update."""
        self.half_changed = False

    @contextmanager
    def changing(self) -> Iterator[None]:
        """An exception in it leaves the weights in doubt."""
        with self.lock:
            self.half_changed = True
            yield
            self.half_changed = False

    def set_rate(self, rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = rate * group.get("faster", 1.0)

    def forget_gradients(self) -> None:
        """Drops the gradients of a step that was broken off."""
        self.optimizer.zero_grad(set_to_none=True)
        if self.scaler:
            self.scaler._per_optimizer_states.clear()  # or they count as unscaled in the next step

    @property
    def scale(self) -> float:
        """What a loss is multiplied by before its gradients are computed."""
        return float(self.scaler.get_scale()) if self.scaler else 1.0

    def gradient_norm(self) -> float:
        if self.scaler and self.parameters[0].grad is not None:
            self.scaler.unscale_(self.optimizer)
        return float(nn.utils.get_total_norm([p.grad for p in self.parameters if p.grad is not None]))

    def clipping(self, norm: float) -> float:
        """The factor by which gradients of this norm are multiplied."""
        return min(1.0, self.grad_clip / (norm + 1e-6)) if self.grad_clip else 1.0

    def step(self, norm: float) -> None:
        """The optimizer's step, its gradients clipped by a norm that all ranks have from the same exchange: different
        GPUs may sum up their own in another order, and then the adapters would differ in a last bit."""
        if self.grad_clip:
            nn.utils.clip_grads_with_norm_(self.parameters, self.grad_clip, torch.tensor(norm))
        if self.scaler:
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            self.optimizer.step()


def trained_weights(model: nn.Module) -> Named:
    """What is trained, under the names that PEFT gives it on disk."""
    named = {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}
    return {name.replace(f"{MAGNITUDE}.weight", MAGNITUDE): p for name, p in named.items()}


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


def optimizer_state(named: Named, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], Numbers]:
    """The optimizer's state as named tensors and, apart, plain numbers (bitsandbytes counts its steps so)."""
    tensors: dict[str, Tensor] = {}
    numbers: Numbers = {}
    for name, parameter in named.items():
        for kind, value in optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"{name}|{kind}"] = value
            else:
                numbers[f"{name}|{kind}"] = value
    return tensors, numbers


def set_optimizer_state(
    named: Named, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: Numbers
) -> None:
    optimizer.state.clear()
    for key, value in [*tensors.items(), *numbers.items()]:
        name, kind = key.rsplit("|", 1)
        parameter = named[name]
        moves = isinstance(value, Tensor) and value.dim()  # AdamW keeps its step counter, a scalar, on the host
        device = getattr(optimizer, "state_device", parameter.device)
        optimizer.state[parameter][kind] = value.to(device) if moves else value
