"""A weight in bitsandbytes' 4 bit, taken apart into plain tensors and put together again: nothing of it is rounded."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

QUANT_STATE = ".quant_state.bitsandbytes__"


def is_four_bit(weight: Tensor) -> bool:
    return getattr(weight, "quant_state", None) is not None


def apart(weight: Tensor) -> dict[str, Tensor]:
    state: Any = weight.quant_state
    parts = {"": weight.data, "absmax": state.absmax, "code": state.code}
    if state.nested:
        parts |= {"offset": state.offset, "absmax2": state.state2.absmax, "code2": state.state2.code}
    return parts


def together(parts: Mapping[str, Tensor], like: Tensor) -> Tensor:
    """`like`: of the same form, for all that is no tensor."""
    from bitsandbytes.nn import Params4bit

    state: Any = copy.copy(like.quant_state)
    state.absmax, state.code = parts["absmax"], parts["code"]
    if state.nested:
        state.offset, state.state2 = parts["offset"], copy.copy(state.state2)
        state.state2.absmax, state.state2.code = parts["absmax2"], parts["code2"]
    others = {name: getattr(like, name) for name in ("blocksize", "compress_statistics", "quant_type", "quant_storage")}
    weight: Tensor = Params4bit(parts[""], requires_grad=False, quant_state=state, bnb_quantized=True, **others)
    return weight


def from_files(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """A layer's tensors, with those that belong to one 4-bit weight put together."""
    weights = dict(tensors)
    for marker in [name for name in tensors if QUANT_STATE in name]:
        from bitsandbytes.nn import Params4bit  # a node without a GPU has it not, and needs it not

        name = marker.partition(QUANT_STATE)[0]
        parts = {part: weights.pop(part) for part in list(weights) if part.startswith(f"{name}.")}
        weights[name] = Params4bit.from_prequantized(weights[name], parts, device=torch.device("cpu"))
    return weights


def quantised(weight: Tensor, like: Any) -> Tensor:
    """The weight quantised as loading a whole model does it, on the device that computes with it."""
    made: Tensor = type(like)(weight, requires_grad=False, **vars(like)).to(weight.device)
    return made


def placeholder(like: Any, empty: Tensor) -> Tensor:
    weight: Tensor = type(like)(empty, requires_grad=False, **vars(like))
    return weight
