"""What Motley relies on in unsloth. Where one of these is not so, a run is refused before its first step:

the version      2026.8 let packed samples see each other, and took "all-linear" letter by letter
its layers       "all-linear" gives every linear layer but the output an adapter
its attention    a sample that shares a row with others has the hidden states that it has alone
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import torch
from packaging.version import Version
from torch import Tensor

from train.errors import BadInput
from train.models import hf
from train.models.backends import ModelSpec, autocast

OLDEST = "2026.10.9"
"""The first in which all of this was seen (tests/unsloth)."""
PROBE_TOKENS = 48
FIX = "use backend: hf, or the locked version: ./motley bootstrap --phase python_env"


def require_version(found: str | None = None) -> None:
    found = found or version("unsloth")
    if Version(found) < Version(OLDEST):
        raise BadInput(f"unsloth {found} is too old: it may let packed samples see each other", _where(found), FIX)


def require(model: Any, spec: ModelSpec) -> None:
    if spec.method == "lora" and spec.adapter is None and spec.lora_targets == "all-linear":
        require_all_linear(model)
    require_apart(model.get_base_model() if hasattr(model, "get_base_model") else model, spec)


def require_all_linear(model: Any) -> None:
    left = hf.without_adapter(model)
    if left:
        raise BadInput(f"unsloth gives {len(left)} linear layers no adapter: {left[0]}, …", _where(), FIX)


def require_apart(model: Any, spec: ModelSpec) -> None:
    """Two samples in a row against the second alone, measured by what mixing them would change. Without labels: the
    loss has nothing to do with it, and its kernels would be compiled for the probe."""
    length = min(PROBE_TOKENS, spec.max_seq_length)
    ids = torch.arange(length, device=spec.device)[None] * 7 % (model.config.vocab_size - 8) + 4
    positions = torch.arange(length, device=spec.device)[None]
    start = 2 * length // 3
    packed_positions = torch.cat([positions[:, :start], positions[:, : length - start]], dim=1)
    backbone = model.base_model
    with torch.no_grad(), autocast(spec.precision, spec.device):
        packed, mixed = (_second(backbone, ids, places, start) for places in (packed_positions, positions))
        alone = _second(backbone, ids[:, start:], positions[:, : length - start], 0)
    if (packed - alone).norm() > (mixed - alone).norm() / 4:
        raise BadInput(f"unsloth lets samples of this {model.config.model_type} model see each other", _where(), FIX)


def _second(backbone: Any, ids: Tensor, positions: Tensor, start: int) -> Tensor:
    states: Tensor = backbone(input_ids=ids, position_ids=positions, use_cache=False).last_hidden_state
    return states[:, start:].float()


def _where(found: str | None = None) -> str:
    return f"package: unsloth {found or version('unsloth')}, in {torch.__file__.rpartition('/torch/')[0]}"
