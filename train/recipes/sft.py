"""Fine-tuning on text: what a run needs to know of that which it trains, and nothing else of it.

rows     packed rows of a prepared data set (train/data)
build    a language model with its adapter, as a function from a micro-batch to its summed loss
metrics  the loss by target token, of each step and of rows that are held out (train/engine)
export   the adapter in PEFT's format, in each checkpoint and as the result (engine/checkpoint.py)
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from train.data.rows import PackedRows, open_rows
from train.models import backends
from train.models.backends import Batch, LossModule, ModelSpec
from train.plan.config import RunConfig
from train.plan.fit import Decisions


def rows(config: RunConfig, say: Callable[[str], None]) -> tuple[PackedRows, PackedRows]:
    """What is trained and what is held out. A prepared folder as it is; anything else is prepared first, once."""
    folder = Path(config.dataset).expanduser()
    if not (folder / "index.json").exists():
        from train.data.prepare import PrepareSettings, prepare

        names = ("dataset", "model", "max_seq_length", "pack", "train_on", "eval_fraction", "max_bad")
        folder = prepare(PrepareSettings(**{name: getattr(config, name) for name in names}), say)
    return open_rows(folder), open_rows(folder, "eval")


def build(config: RunConfig, decisions: Decisions, base: Path, device: str, row_length: int) -> LossModule:
    names = ("method", "lora_r", "lora_alpha", "lora_targets", "rslora", "seed")
    wanted = {name: getattr(config, name) for name in names}
    wanted |= {name: value for name, value in decisions.as_dict().items() if name != "backend"}
    backend = backends.get(decisions.backend)
    model = backend.build(ModelSpec(folder=str(base), device=device, max_seq_length=row_length, **wanted))
    return backends.loss_module(backend, model, decisions.precision, device)


def full_rows(count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
    """A micro-batch of random rows that are full, and targets throughout: what takes most time and memory."""
    ids = torch.randint(vocabulary, (count, length), generator=torch.Generator().manual_seed(seed)).to(device)
    return {"input_ids": ids, "labels": ids, "position_ids": torch.arange(length, device=device).expand(count, length)}
