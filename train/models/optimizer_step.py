"""The optimizer's step: gradients clipped, weights changed; and what the optimizer knows of each weight."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from train.models.weights import Named

Numbers = dict[str, float]
"""What an optimizer knows of a weight that is no tensor, by "WEIGHT|KIND"."""


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


def make_scaler(precision: str, device: str) -> Any:
    """The scaler of gradients, which fp16 alone needs, so that small ones do not vanish; else None."""
    if precision != "fp16":
        return None
    scaler = torch.amp.GradScaler(torch.device(device).type)
    scaler.scale(torch.zeros(1, device=device))  # makes its scale exist before the first unscale_
    return scaler


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
