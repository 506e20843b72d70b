"""Where models come from. Two backends share one small interface, and nothing else knows which of them is at work:

build(spec) -> module          base model with its adapter, on its device, in train mode
loss_sum(model, batch) -> sum  the summed loss of all target tokens of the batch, fp32, one number

LossModule is all that training sees of a model.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from train.models import row_noise

if TYPE_CHECKING:
    from train.data.rows import Rows

Batch = dict[str, Tensor]


def to_tensors(batch: Mapping[str, NDArray[Any]], device: str) -> Batch:
    """The position ids, new for each sample, are all that keeps packed samples apart: given them and no attention mask,
    transformers builds a block-diagonal mask (shown in tests/train/test_packing_exact.py)."""
    return {name: torch.from_numpy(values).to(device, non_blocking=True) for name, values in batch.items()}


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
    lora_alpha: int | float = 16
    lora_targets: str = "all-linear"
    rslora: bool = False
    dora: bool = False
    lora_init: str = "default"
    lora_dropout: float = 0.0
    neftune_alpha: float = 0.0
    gradient_checkpointing: str = "false"
    weights: str = "gpu"
    """gpu: the base is held where it is computed with; stream: its layers come when they are (stream.py)."""
    layers: tuple[int, int] | None = None
    """The layers that are here, from the first to before the second; the others are elsewhere (part.py); None: all."""
    max_seq_length: int = 512
    seed: int = 3407
    adapter: Path | None = None
    """A saved adapter, loaded in place of a new one."""

    @property
    def targets(self) -> str | list[str]:
        return self.lora_targets if self.lora_targets == "all-linear" else self.lora_targets.split(",")


class Backend(Protocol):
    def build(self, spec: ModelSpec) -> nn.Module: ...
    def loss_sum(self, model: nn.Module, batch: Batch) -> Tensor: ...


def get(name: str) -> Backend:
    """Imports the backend: unsloth must come before transformers and peft, so call this early."""
    return cast(Backend, importlib.import_module(f"train.models.{name}"))


@contextmanager
def at_rest(model: nn.Module) -> Iterator[None]:
    """Puts a model into evaluation, and afterwards as it was."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


class LossModule(nn.Module):  # type: ignore[misc]
    """The model as a function from a micro-batch to its summed loss. None stands for a rank without rows: a loss of
    zero that still touches every trainable weight, so that ddp's exchange happens without computing anything."""

    def __init__(
        self,
        model: nn.Module,
        loss_sum: Callable[[nn.Module, Batch], Tensor],
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
        metrics: tuple[str, ...] = (),
        measured: Callable[[nn.Module, Batch], Tensor] | None = None,
        *,
        in_steps: bool = False,
    ) -> None:
        """`measured`: the summed loss and, behind it, the sum over rows of each of the `metrics`; `in_steps`: these of
        training steps as well."""
        super().__init__()
        self.model, self.loss_sum, self.autocast = model, loss_sum, autocast
        self.metrics, self.measured = metrics, measured
        self.in_steps = in_steps
        self.seen: list[Tensor] = []
        """The sums of the metrics, of each micro-batch since they were last taken."""

    def forward(self, batch: Batch | None) -> Tensor:
        if batch is None:
            return torch.stack([(p * 0).sum() for p in self.model.parameters() if p.requires_grad]).sum()
        batch = row_noise.of_rows(self.model, batch)
        if not self.in_steps:
            with self.autocast():
                return self.loss_sum(self.model, batch)
        sums = self.measure(batch)
        self.seen.append(sums[1:].detach())
        return sums[0]

    def take_seen(self) -> list[float]:
        """The sums of the metrics over all rows since they were last taken."""
        seen, self.seen = self.seen, []
        if not self.in_steps:
            return []
        return torch.stack(seen).double().sum(0).tolist() if seen else [0.0] * len(self.metrics)

    def measure(self, batch: Batch) -> Tensor:
        """The sums of an evaluation over the batch: the loss alone, or what `measured` gives."""
        if self.measured is None:
            return self(batch)[None]
        with self.autocast():
            return self.measured(self.model, batch)


def sums_over(
    module: LossModule, rows: Rows, indices: list[int], *, micro_batch: int, device: str
) -> tuple[list[float], int]:
    """The summed loss over rows of which nothing is learned, with the sums of the recipe's metrics behind it, and the
    number of target tokens."""
    total = np.zeros(1 + len(module.metrics))
    with at_rest(module), torch.no_grad():
        for first in range(0, len(indices), micro_batch):
            batch = rows.batch(indices[first : first + micro_batch])
            total += module.measure(to_tensors(batch, device)).double().cpu().numpy()
    return total.tolist(), int(rows.targets[indices].sum()) if indices else 0


def loss_module(backend: Backend, model: nn.Module, precision: str, device: str) -> LossModule:
    """The model behind a backend, computing in the run's precision."""
    return LossModule(model, backend.loss_sum, partial(autocast, precision, device))


def autocast(precision: str, device: str) -> AbstractContextManager[Any]:
    if precision == "fp32":
        return nullcontext()
    dtype = torch.bfloat16 if precision == "bf16" else torch.float16
    context: AbstractContextManager[Any] = torch.autocast(torch.device(device).type, dtype)
    return context
