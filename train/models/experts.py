"""Mixtures of experts: the matrices of all experts lie in one weight, which `all-linear` passes over, and PEFT adapts
such a weight by its name.

    fused       these weights
    parameters  all that an adapter must name so, experts and more
    uncovered   which of them have no adapter
    joined      these weights of a layer, of files that hold expert by expert
    routers_with_adapter  which nothing can train
    in_fp32     routers choose in fp32, whatever the run's precision
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from train.errors import BadInput

APART = re.compile(r".*\.experts\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
OF_MIXTRAL = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
"""What mixtral's files call them; the module that they call block_sparse_moe is another family's mlp."""
ONCE_EXPERTS = ("gate_proj", "up_proj", "down_proj", "w1", "w2", "w3")
"""PEFT takes these names of layers for experts that each were a layer once: a dense layer of such a name, as a shared
expert has, is adapted by its weight's name instead."""


def fused(model: nn.Module) -> dict[str, Tensor]:
    """Many matrices in one weight."""
    return {
        f"{path}.{name}": weight
        for path, module in model.named_modules()
        if not isinstance(module, nn.modules.conv._ConvNd)
        for name, weight in module.named_parameters(recurse=False)
        if weight.ndim == 3 and min(weight.shape) > 1
    }


def parameters(model: nn.Module, wanted: str | list[str], linear: Iterable[str]) -> list[str]:
    """The weights that an adapter is put around by their names; none where the model is no mixture. `wanted`: as set,
    `linear`: the names of the layers that `all-linear` takes."""
    many = fused(model)
    dense = [name for name in linear if many and leaf(name) in ONCE_EXPERTS]
    if packed := [name for name in dense if not model.get_submodule(name).weight.is_floating_point()]:
        raise BadInput(
            f"load_in: a mixture of experts has no adapter for {packed[0]} where that is quantised",
            fix="use load_in: 16bit",
        )
    names = [*many, *(f"{name}.weight" for name in dense)]
    return [name for name in names if isinstance(wanted, str) or leaf(name) in wanted]


def leaf(name: str) -> str:
    return name.removesuffix(".weight").rpartition(".")[2]


def uncovered(model: nn.Module) -> list[str]:
    from peft.tuners.lora.layer import ParamWrapper

    wrappers = [module for module in model.modules() if isinstance(module, ParamWrapper)]
    covered = {(id(each.get_base_layer()), each.parameter_name) for each in wrappers}
    return [
        name for name in fused(model) if (id(model.get_submodule(name.rpartition(".")[0])), leaf(name)) not in covered
    ]


def routers_with_adapter(model: nn.Module) -> list[str]:
    """The routers that are linear layers themselves; what they return is no layer's output."""
    return [
        name.removesuffix(".base_layer")
        for name, module in model.named_modules()
        if name.endswith(".base_layer") and is_router(module)
    ]


def is_router(module: nn.Module) -> bool:
    return type(module).__name__.endswith("Router")


def joined(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A layer's weights as transformers has them once it has loaded files that hold expert by expert."""
    whole, apart = dict(weights), defaultdict[str, dict[str, list[Tensor]]](lambda: defaultdict(list))
    if any(name.endswith(".w1.weight") for name in weights):
        whole = {name.replace("block_sparse_moe.", "mlp."): weight for name, weight in whole.items()}
    for name in sorted(filter(APART.fullmatch, whole), key=number_of):
        path, _, kind = name.removesuffix(".weight").rsplit(".", 2)
        apart[path][OF_MIXTRAL.get(kind, kind)].append(whole.pop(name))
    for path, kinds in apart.items():
        whole[f"{path}.gate_up_proj"] = side_by_side(kinds["gate_proj"], kinds["up_proj"])
        whole[f"{path}.down_proj"] = torch.stack(kinds["down_proj"])
    return whole


def number_of(name: str) -> int:
    return int(name.rsplit(".", 3)[1])


def side_by_side(gates: list[Tensor], ups: list[Tensor]) -> Tensor:
    """Written once, where they stay: a layer's experts may take a gigabyte."""
    rows, columns = gates[0].shape
    pairs = torch.empty(len(gates), 2 * rows, columns, dtype=gates[0].dtype)
    for pair, gate, up in zip(pairs, gates, ups, strict=True):
        pair[:rows], pair[rows:] = gate, up
    return pairs


def in_fp32(model: nn.Module) -> None:
    """A score that is rounded to bf16 may choose another expert, and on another machine yet another."""
    for module in model.modules():
        if is_router(module):
            module.float()
            module.forward = RouterInFp32(module.forward)


class RouterInFp32:
    def __init__(self, forward: Any) -> None:
        self.compute = forward

    def __call__(self, hidden: Tensor, *args: Any, **more: Any) -> Any:
        with torch.autocast(hidden.device.type, enabled=False):
            result = self.compute(hidden.float(), *args, **more)
        parts = result if isinstance(result, tuple) else (result,)
        back = tuple(part.to(hidden.dtype) if part.is_floating_point() else part for part in parts)
        return back if isinstance(result, tuple) else back[0]
