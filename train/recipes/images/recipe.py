"""Pictures into classes, from nothing or by a model that is trained already: all weights are trained, and all are
exchanged (recipes/__init__.py says what each part is).

rows     pictures of one size, shifted and mirrored while they are trained on
start    the rows' folder: it names the classes
build    a ResNet with GroupNorm, a small ViT, or a model of others with a classifier of its own
export   the model and its labels
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from train.data.rows import read_index
from train.errors import BadInput
from train.models.backends import Batch, LossModule, at_rest
from train.models.model_files import model_folder
from train.models.weights import Named, WeightGroup, shrunk_and_kept, write_whole
from train.plan.model.hashes import base_hash
from train.plan.model.picture_facts import COLOURS, PictureFacts
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import ImagesConfig
from train.recipes import model_card, prepared
from train.recipes.images import models as pictures
from train.recipes.images import pretrained as picture_bases
from train.recipes.images.rows import KIND, PictureRows, open_pictures, write_labels

if TYPE_CHECKING:
    from train.engine.loop import Run

WORST = 8
NOT_SHRUNK = ("cls_token", "position_embeddings")


def rows(config: ImagesConfig, say: Callable[[str], None]) -> tuple[PictureRows, PictureRows]:
    folder = start(config, lambda _: None)
    return open_pictures(folder, seed=config.seed, augment=config.augment), open_pictures(folder, "eval")


def start(config: ImagesConfig, say: Callable[[str], None]) -> Path:
    folder = prepared(config, say)
    index = read_index(folder)
    if index.get("kind") != KIND:
        fix = "prepare pictures with: python -m train prepare --recipe images --dataset FOLDER"
        raise BadInput("these rows are of text, not of pictures", f"folder: {folder}", fix)
    if (size := int(index["row_length"])) != config.image_size:
        raise BadInput(
            f"the rows have pictures of {size} × {size}, and image_size is {config.image_size}",
            f"folder: {folder}",
            f"set image_size: {size}, or prepare the pictures again",
        )
    return folder


def start_for_trial(config: ImagesConfig) -> None:
    """A speed can be measured before there are rows."""


def classes(start: Path) -> list[str]:
    return list(read_index(start)["classes"])


def shape(config: ImagesConfig, start: Path | None) -> PictureFacts:
    return config.facts(len(classes(start)) if start else 0)


def build(config: ImagesConfig, decisions: Decisions, start: Path | None, device: str, row_length: int) -> LossModule:
    facts = shape(config, start)
    if config.is_base:
        model = picture_bases.build(
            base_of(config), classes=facts.classes, image_size=config.image_size, seed=config.seed
        )
        module = pictures.loss_module(model.to(device).train(), decisions.precision, device)
    else:
        module = pictures.build(facts, precision=decisions.precision, seed=config.seed, device=device)
    if start:
        name_classes(module.model, classes(start))
    return module


def base_of(config: ImagesConfig) -> Path:
    return Path(model_folder(config.model))


def name_classes(model: Any, names: list[str]) -> None:
    """Writes the names of the classes into transformers' own place for them."""
    if not hasattr(model.config, "id2label"):
        return
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {name: number for number, name in enumerate(names)}


def full_rows(count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
    random = torch.Generator().manual_seed(seed)
    found = torch.randint(256, (count, COLOURS, length, length), dtype=torch.uint8, generator=random)
    labels = torch.randint(min(2, vocabulary), (count,), generator=random)
    return {"pictures": found.to(device), "labels": labels.to(device)}


def optimized(config: ImagesConfig, named: Named) -> list[WeightGroup]:
    """Convolutions and matrices are shrunk a little in each step; norms, biases and positions are not."""
    return [*shrunk_and_kept(named, config.weight_decay, but=NOT_SHRUNK)]


def identity(config: ImagesConfig, start: Path) -> dict[str, str]:
    model = base_hash(base_of(config)) if config.is_base else config.model
    return {"classes": hashlib.sha256(json.dumps(classes(start)).encode()).hexdigest(), "model": model}


def samples(run: Run) -> list[dict[str, str]]:
    """At the end: the classes that it takes for another one most often, each with which and how often."""
    count = min(len(run.held_out), run.config.eval_rows)
    if run.step < run.total_steps or not count:
        return []
    held_out = cast(PictureRows, run.held_out)
    found = predicted(run.module, held_out, count, run.micro_batch, run.device)
    return mixed_up(classes(held_out.folder.parent), held_out.labels[:count].tolist(), found)


def predicted(module: LossModule, rows: PictureRows, count: int, micro_batch: int, device: str) -> list[int]:
    """The likeliest class of each of the first rows."""
    found: list[int] = []
    with at_rest(module), torch.no_grad(), module.autocast():
        for first in range(0, count, micro_batch):
            some = rows.batch(list(range(first, min(count, first + micro_batch))))["pictures"]
            found += pictures.scores(module.model, torch.from_numpy(some).to(device)).argmax(dim=1).tolist()
    return found


def mixed_up(names: list[str], labels: list[int], found: list[int]) -> list[dict[str, str]]:
    of = Counter(labels)
    pairs = Counter((label, other) for label, other in zip(labels, found, strict=True) if label != other)
    worst = sorted(pairs.items(), key=lambda pair: (-pair[1], pair[0]))[:WORST]
    return [
        {"given": names[label], "wrote": f"{names[other]}, {count} times of {of[label]}"}
        for (label, other), count in worst
    ]


def export(run: Run, folder: Path) -> None:
    write_labels(folder, classes(cast(PictureRows, run.rows).folder.parent))
    write_whole(folder, run.module.model, run.trained.named)
    config = cast(ImagesConfig, run.config)
    if config.is_base and (processor := base_of(config) / picture_bases.PROCESSOR).is_file():
        shutil.copyfile(processor, folder / processor.name)


def card(run: Run) -> str:
    known = classes(cast(PictureRows, run.rows).folder.parent)
    return model_card.picture_card(run, classes=len(known), pixels=pictures.pixel_words(run.module.model))
