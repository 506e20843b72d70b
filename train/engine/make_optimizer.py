"""The optimizer of a run, where it computes, and its learning rate at each step.

CUDA joins a multiplication and an addition into one rounding, a CPU does not: AdamW's weights differ in a last bit for
4 % of them. Nodes that train one adapter must hold the same bits, so where GPUs and CPUs train together the CPUs' kind
of processor steps for all: each GPU node steps in main memory, which for an adapter takes milliseconds. So do kinds of
cards of which nobody has seen yet that they step to the same bits.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from train.errors import BadInput
from train.models.weights import WeightGroup
from train.parallel.muon import Muon
from train.plan.machines.nodes import Device
from train.plan.settings.read_settings import RunConfig

MOMENTUM = 0.9
STEADY = 0.8
"""Part of a run that `wsd` trains at its peak rate before it falls."""


def make_optimizer(
    config: RunConfig, parameters: list[nn.Parameter] | list[WeightGroup], *, on_cpu: bool = False
) -> Any:
    """Makes the optimizer of weights, or of groups of them with options of their own."""
    options: dict[str, Any] = {"lr": config.learning_rate, "weight_decay": config.weight_decay}
    if config.optimizer == "sgd":
        return (SgdOnCpu if on_cpu else torch.optim.SGD)(parameters, **options, momentum=MOMENTUM, nesterov=True)
    if config.optimizer == "muon":
        return (MuonOnCpu if on_cpu else Muon)(parameters, **options)
    if config.optimizer == "adamw":
        # Not fused=True: on a processor it takes weights and moments as laid out alike, and those of PiSSA are not.
        return (AdamWOnCpu if on_cpu else torch.optim.AdamW)(parameters, **options)
    try:
        import bitsandbytes
    except ImportError:
        raise BadInput("optimizer: adamw8bit needs bitsandbytes, which is not installed", fix="use adamw") from None
    return bitsandbytes.optim.AdamW8bit(parameters, **options)


def why_on_cpu(devices: Sequence[Device], optimizer: str = "adamw") -> str:
    """Why all step on the processor; empty where each steps where its weights are. Muon's owners are for unlike cards,
    and 8-bit AdamW is a card's."""
    where = "optimizer on the processor"
    if len({device.is_gpu for device in devices}) > 1:
        return f"{where}: graphics cards and processors train together"
    kinds = sorted({device.capability for device in devices if device.capability}, key=float)
    alike = {pair for device in devices for pair in device.alike}
    odd = [(a, b) for a, b in itertools.combinations(kinds, 2) if f"{a}+{b}" not in alike]
    if not odd or optimizer not in ("adamw", "sgd"):
        return ""
    return f"{where}: that cards of {odd[0][0]} and {odd[0][1]} hold the same is not proven (docs/cards.md)"


class OnCpu(torch.optim.Optimizer):  # type: ignore[misc]
    """Weights and gradients stay where they are; a step is computed on the processor, and its state lies there."""

    state_device = torch.device("cpu")

    def step(self, closure: None = None) -> None:
        held = [(p, p.data, p.grad) for group in self.param_groups for p in group["params"] if p.grad is not None]
        for parameter, weights, gradient in held:
            parameter.grad = None
            parameter.data = weights.to("cpu", copy=True)
            parameter.grad = gradient.to("cpu")
        try:
            super().step(closure)
        finally:
            for parameter, weights, gradient in held:
                stepped, parameter.grad = parameter.data, None
                parameter.data = weights.copy_(stepped)
                parameter.grad = gradient


class AdamWOnCpu(OnCpu, torch.optim.AdamW):  # type: ignore[misc]
    pass


class MuonOnCpu(OnCpu, Muon):
    pass


class SgdOnCpu(OnCpu, torch.optim.SGD):  # type: ignore[misc]
    pass


def learning_rate(step: int, *, peak: float, kind: str, warmup_steps: int, total_steps: int) -> float:
    """The rate of step `step` (from 0): linear warm-up, then cosine or linear to zero, or constant;
    wsd: constant until STEADY of the steps, then linear to zero."""
    if step < warmup_steps:
        return peak * (step + 1) / warmup_steps
    if kind == "constant":
        return peak
    if kind == "wsd":
        falls_from = max(warmup_steps, int(STEADY * total_steps))
        return peak * min(1.0, max(0.0, (total_steps - step) / max(1, total_steps - falls_from)))
    done = (step - warmup_steps) / max(1, total_steps - warmup_steps)
    left = 1 - done if kind == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return peak * max(0.0, left)
