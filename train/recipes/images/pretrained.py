"""Picture models that others have trained, in transformers' own classes: with a classifier for other classes, with no
random number while they train, and with the statistics of their BatchNorm as they are.

BatchNorm that keeps counting looks across rows: the gradient would depend on how a step is cut.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from train.errors import BadInput
from train.models import dropout
from train.plan.model import picture_bases

SPREAD = 0.02
HALF = [0.5, 0.5, 0.5]
PROCESSOR = "preprocessor_config.json"
MOST_NEW = 0.25
"""Part of the weights that a base may lack: more than a classifier would be a model from nothing, in silence."""


class StillBatchNorm(nn.BatchNorm2d):  # type: ignore[misc]
    """A batch norm that keeps the statistics of those who trained it, also in train mode."""

    def train(self, mode: bool = True) -> StillBatchNorm:
        found: StillBatchNorm = super().train(False)
        return found


def build(folder: Path, *, classes: int, image_size: int, seed: int) -> Any:
    config = config_of(folder)
    picture_bases.facts_of(config.to_dict(), str(folder), image_size=image_size, classes=classes)
    config.num_labels = classes
    dropped = dropout.in_words(dropout.switched_off(config))
    model, fresh = loaded(folder, config)
    draw(model, fresh, seed)
    processor = read(folder / PROCESSOR)
    config._name_or_path = ""  # a folder of this node; the others write the same file
    config.image_size = image_size
    config.image_mean = processor.get("image_mean", HALF)
    config.image_std = processor.get("image_std", HALF)
    model.config = config
    dropout.note(model, dropped)
    return model


def config_of(folder: Path) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, trust_remote_code=False)


def loaded(folder: Path, config: Any) -> tuple[Any, set[str]]:
    """The model, and the names of its weights that the files do not have: those of its classifier."""
    from transformers import AutoModelForImageClassification
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    model, info = AutoModelForImageClassification.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
        output_loading_info=True,
        trust_remote_code=False,
    )
    still(model)
    fresh = {*info["missing_keys"], *(key if isinstance(key, str) else key[0] for key in info["mismatched_keys"])}
    named = dict(model.named_parameters())
    fresh &= named.keys()
    lacking = sum(named[name].numel() for name in fresh)
    if lacking > MOST_NEW * sum(p.numel() for p in named.values()):
        raise BadInput(
            f"the files of this model have not its weights: {lacking / 1e6:.1f} M would begin at random, such as "
            f"{min(fresh)}",
            f"folder: {folder}",
            "choose a model that was trained on pictures",
        )
    return model, fresh


def still(model: nn.Module) -> None:
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            layer.__class__ = StillBatchNorm
            layer.eval()


def draw(model: nn.Module, names: Iterable[str], seed: int) -> None:
    random, named = torch.Generator().manual_seed(seed), dict(model.named_parameters())
    with torch.no_grad():
        for name in sorted(names):
            weight = named[name]
            if weight.dim() > 1:
                weight.normal_(0.0, SPREAD, generator=random)
            else:
                weight.fill_(0.0 if name.endswith("bias") else 1.0)


def load(folder: Path, base: str = "") -> Any:
    """What a run has made. A checkpoint has only what is trained: the rest is its base's."""
    from safetensors.torch import load_file
    from transformers import AutoModelForImageClassification

    config, state = config_of(folder), load_file(folder / "model.safetensors")
    model = AutoModelForImageClassification.from_config(config)
    if base and model.state_dict().keys() - state.keys():
        model, _ = loaded(Path(base), config)
    wrong = model.load_state_dict(state, strict=False)
    if wrong.unexpected_keys or (wrong.missing_keys and not base):
        name = [*wrong.unexpected_keys, *wrong.missing_keys][0]
        raise BadInput(f"the weights of this model are not whole: {name}", f"folder: {folder}")
    still(model)
    return model


def complete(folder: Path, base: str) -> None:
    """A copy of a run's model: of a checkpoint with the statistics of its base, which it has not itself."""
    from safetensors.torch import save_file

    save_file(load(folder, base).state_dict(), folder / "model.safetensors", metadata={"format": "pt"})
    if (processor := Path(base) / PROCESSOR).is_file():
        shutil.copyfile(processor, folder / PROCESSOR)


def read(file: Path) -> dict[str, Any]:
    return dict(json.loads(file.read_text())) if file.is_file() else {}
