"""Fine-tuning on text: an adapter, or all weights of a model that is there (recipes/__init__.py says what each is).

rows     packed rows of a prepared data set (train/data)
start    the base model
build    a language model with its adapter
export   the adapter in PEFT's format, with the name of its base and a card
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch

from train.data.rows import PackedRows, open_rows, template_of
from train.models import backends
from train.models.backends import Batch, LossModule, ModelSpec
from train.models.model_files import model_folder, shape_of
from train.models.weights import SCORE, Named, WeightGroup, shrunk_and_kept, take_weights, trained_weights
from train.plan.model import adapters, weight_files
from train.plan.model.catalogue import Facts
from train.plan.model.hashes import base_hash
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import SftConfig
from train.recipes import model_card, prepared

OF_MODEL = (
    *("method", "lora_r", "lora_alpha", "lora_targets", "rslora", "dora", "lora_init", "lora_dropout"),
    *("neftune_alpha", "seed", "weights"),
)
"""The settings that a model is built by."""

if TYPE_CHECKING:
    from train.engine.loop import Run


def rows(config: SftConfig, say: Callable[[str], None]) -> tuple[PackedRows, PackedRows]:
    folder = prepared(config, say)
    return open_rows(folder), open_rows(folder, "eval")


def start(config: SftConfig, say: Callable[[str], None]) -> Path:
    folder = Path(model_folder(config.model))
    weight_files.require(folder)
    return folder


def start_for_trial(config: SftConfig) -> Path:
    return start(config, lambda _: None)


def shape(config: SftConfig, start: Path) -> Facts | None:
    return shape_of(start)


def build(
    config: SftConfig,
    decisions: Decisions,
    base: Path,
    device: str,
    row_length: int,
    *,
    layers: tuple[int, int] | None = None,
) -> LossModule:
    """`layers`: of a model that is cut, those that are here."""
    wanted = {name: getattr(config, name) for name in OF_MODEL}
    wanted |= {name: value for name, value in decisions.as_dict().items() if name != "backend"}
    backend = backends.get(decisions.backend)
    spec = ModelSpec(folder=str(base), device=device, max_seq_length=row_length, layers=layers, **wanted)
    model = backend.build(spec)
    if config.adapter:
        take_weights(Path(config.adapter) / adapters.WEIGHTS, trained_weights(model))
    return backends.loss_module(backend, model, decisions.precision, device)


def optimized(config: SftConfig, named: Named) -> list[WeightGroup]:
    """LoRA+: the second matrix, and what DoRA adds behind it, learn faster than the first, and than a head.
    Of all weights, norms and biases are not shrunk, as transformers has it."""
    if config.method == "full":
        return [group for group in shrunk_and_kept(named, config.weight_decay) if group["params"]]
    slow = ("lora_A", f".{SCORE}.weight") if config.loraplus_lr_ratio != 1 else ("",)
    first = {name: weight for name, weight in named.items() if any(part in name for part in slow)}
    groups: list[WeightGroup] = [{"params": list(first.values())}]
    if faster := [weight for name, weight in named.items() if name not in first]:
        groups.append({"params": faster, "faster": config.loraplus_lr_ratio})
    return groups


def identity(config: SftConfig, start: Path) -> dict[str, str]:
    """The base, which must be that of the adapter that the run begins with."""
    found = base_hash(start)
    if config.adapter:
        adapters.require_hash(adapters.read(Path(config.adapter)), found, Path(config.model).name)
    return {"base weights": found}


def samples(run: Run) -> list[dict[str, str]]:
    """None: what it learned shows beside the base's answers (results/ask.py)."""
    return []


def export(run: Run, folder: Path) -> None:
    config = cast(SftConfig, run.config)
    origin = model_card.origin_of(config)
    model_card.name_base(folder, origin)
    if config.method == "lora":
        if own := template_of(run.rows.folder.parent):
            (folder / adapters.TEMPLATE).write_text(own, encoding="utf-8")
        adapters.write_descent(folder, model_card.descent(config, origin, run.trains_on["base weights"], run.step))


def card(run: Run) -> str:
    return model_card.card(run, run.milestones.base, run.milestones.newest)


def full_rows(count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
    """A micro-batch of random rows that are full, and targets throughout: what takes most time and memory."""
    ids = torch.randint(vocabulary, (count, length), generator=torch.Generator().manual_seed(seed)).to(device)
    return {"input_ids": ids, "labels": ids, "position_ids": torch.arange(length, device=device).expand(count, length)}
