"""What an adapter begins with where that is not chance: the strongest part of each layer (PiSSA), or its first
directions (OLoRA).

    begin       puts them in, and takes their product off what the layer gives: at the first step the model is its base
    named       the numbers that are taken off: they are not trained, and no rank may have others
    as_plain    the adapter with what is taken off as a second half: a LoRA of twice the rank, which all PEFT can load
    without     the first half again

PEFT changes the base instead, which rounds it once more, and whoever loads the adapter must compute the same parts of
it. Here the base stays as it is in its files. The numbers are computed on the processor in fp64 and rounded to those of
bf16, so that kinds of processors, which sum up in another order, come to the same bits; a hash proves it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from train.errors import BadInput
from train.models.repeatable_random import key

BESIDE = 16
"""Directions that are followed beside those that are wanted, so that the last of these are found as well."""
TURNS = 6
"""How often a guess of the strongest directions goes through the matrix and back."""
A, B = "lora_A", "lora_B"


def begin(model: nn.Module, kind: str, seed: int) -> None:
    """BadInput where the base is not there to be looked at."""
    for name, layer in _layers(model):
        weight = layer.get_base_layer().weight
        if not weight.is_floating_point():
            raise BadInput(f"lora_init: {kind} needs a base that is not quantised", fix="leave lora_init out")
        matrix = (weight.T if layer.fan_in_fan_out else weight).detach().cpu().double()
        down, up = KINDS[kind](matrix, layer.r["default"], layer.scaling["default"], key(seed, name))
        for part, first in ((A, down), (B, up)):
            trained = getattr(layer, part)["default"].weight
            trained.data = first.bfloat16().to(trained)
            layer.register_buffer(f"first_{part}", trained.data.clone(), persistent=False)
        layer.register_forward_hook(_take_off)


def pissa(matrix: Tensor, rank: int, scaling: float, seed: int) -> tuple[Tensor, Tensor]:
    """The strongest directions of the matrix, half of their strength on each side."""
    up, strengths, down = _strongest(matrix, rank, seed)
    turned = up.gather(0, up.abs().argmax(0, keepdim=True)).sign()  # which of the two is meant is arbitrary
    half = (strengths / scaling).sqrt()
    return half[:, None] * down * turned.T, up * half * turned


def olora(matrix: Tensor, rank: int, scaling: float, seed: int) -> tuple[Tensor, Tensor]:
    """An orthonormal basis of its first columns, and what of the matrix lies along it."""
    up, own = torch.linalg.qr(matrix[:, :rank])
    return torch.cat([own, up.T @ matrix[:, rank:]], dim=1), up


KINDS: Mapping[str, Callable[[Tensor, int, float, int], tuple[Tensor, Tensor]]] = {"pissa": pissa, "olora": olora}


def _strongest(matrix: Tensor, rank: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Finds them as an SVD does, in a hundredth of its time where the matrix is large, by a guess that it turns."""
    wide = min(rank + BESIDE, *matrix.shape)
    guess = np.random.Generator(np.random.PCG64(seed % 2**63)).standard_normal((matrix.shape[1], wide))
    basis, _ = torch.linalg.qr(matrix @ torch.from_numpy(guess))
    for _ in range(TURNS):
        basis, _ = torch.linalg.qr(matrix @ torch.linalg.qr(matrix.T @ basis)[0])
    up, strengths, down = torch.linalg.svd(basis.T @ matrix, full_matrices=False)
    return basis @ up[:, :rank], strengths[:rank], down[:rank]


def _take_off(layer: Any, args: tuple[Any, ...], out: Tensor) -> Tensor:
    if layer.disable_adapters or layer.merged:
        return out
    given = args[0].to(layer.first_lora_A.dtype)
    return out - (layer.scaling["default"] * F.linear(F.linear(given, layer.first_lora_A), layer.first_lora_B)).to(out)


def _layers(model: nn.Module) -> Iterator[tuple[str, Any]]:
    from peft.tuners.lora.layer import LoraLayer

    layers = ((name, module) for name, module in model.named_modules() if isinstance(module, LoraLayer))
    yield from sorted(layers, key=lambda pair: pair[0])


def named(model: nn.Module) -> dict[str, Tensor]:
    """The first weights by the names of those that began so; empty where they began by chance."""
    return {
        f"{name}.{part}.weight": getattr(layer, f"first_{part}")
        for name, layer in _layers(model)
        for part in (A, B)
        if hasattr(layer, f"first_{part}")
    }


def as_plain(model: nn.Module, tensors: dict[str, Tensor], config: Any) -> tuple[dict[str, Tensor], Any]:
    """The adapter and its config as any PEFT reads them."""
    if not (first := named(model)):
        return tensors, config
    plain = {
        name: torch.cat([tensors[name], own.cpu() if A in name else -own.cpu()], dim=0 if A in name else 1)
        for name, own in first.items()
    }
    alpha = config.lora_alpha * (math.sqrt(2) if config.use_rslora else 2)  # the scale stays as it is
    own = copy.copy(config)
    own.r, own.lora_alpha, own.init_lora_weights = 2 * config.r, alpha, True
    return tensors | plain, own


def without(saved: Tensor, own: Tensor) -> Tensor:
    """A saved weight as the run trains it."""
    return saved[tuple(slice(size) for size in own.shape)] if saved.dim() == own.dim() else saved
