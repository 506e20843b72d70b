"""What is trained, and what the optimizer knows of it, by the names that PEFT gives it on disk."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

Named = dict[str, nn.Parameter]


def trained_weights(model: nn.Module) -> Named:
    """What is trained, under the names that PEFT gives it on disk."""
    return {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}


def optimizer_state(named: Named, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Its state as named tensors and, apart, plain numbers (bitsandbytes counts its steps so)."""
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for name, parameter in named.items():
        for kind, value in optimizer.state.get(parameter, {}).items():
            (tensors if isinstance(value, Tensor) else numbers)[f"{name}|{kind}"] = value
    return tensors, numbers


def set_optimizer_state(
    named: Named, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor], numbers: dict[str, Any]
) -> None:
    optimizer.state.clear()
    for key, value in [*tensors.items(), *numbers.items()]:
        name, kind = key.rsplit("|", 1)
        parameter = named[name]
        moves = isinstance(value, Tensor) and value.dim()  # AdamW keeps its step counter, a scalar, on the host
        place = getattr(optimizer, "state_device", parameter.device)
        optimizer.state[parameter][kind] = value.to(place) if moves else value
