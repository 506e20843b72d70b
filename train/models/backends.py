"""Where models come from. Two backends share one small interface, and nothing else knows which of them is at work:

build(spec) -> module          base model with its adapter, on its device, in train mode
loss_sum(model, batch) -> sum  the summed loss of all target tokens of the batch, fp32, one number
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from torch import Tensor, nn


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """All that a backend needs to know to build a model."""

    folder: str
    device: str = "cpu"
    precision: str = "fp32"
    load_in: str = "16bit"
    method: str = "lora"
    """lora, full, or base: the model as it is, without an adapter."""
    lora_r: int = 16
    lora_alpha: int = 16
    lora_targets: str = "all-linear"
    rslora: bool = False
    gradient_checkpointing: str = "false"
    max_seq_length: int = 512
    seed: int = 3407
    adapter: Path | None = None
    """A saved adapter, loaded in place of a new one."""

    @property
    def targets(self) -> str | list[str]:
        return self.lora_targets if self.lora_targets == "all-linear" else self.lora_targets.split(",")


class Backend(Protocol):
    def build(self, spec: ModelSpec) -> nn.Module: ...
    def loss_sum(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor: ...


def get(name: str) -> Backend:
    """Imports the backend: unsloth must come before transformers and peft, so call this early."""
    return cast(Backend, importlib.import_module(f"train.models.{name}"))
