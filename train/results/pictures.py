"""What a model of pictures is used for: the classes of a picture, and its accuracy on those that were held out."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from train.data.rows import read_index
from train.errors import BadInput
from train.recipes.images.prepare import Seen, Source, decoded
from train.recipes.images.rows import open_pictures
from train.results.finished_run import FinishedRun, some_held_out

if TYPE_CHECKING:
    from train.models.backends import LossModule

SHOWN = 5
Likely = TypedDict("Likely", {"class": str, "probability": float})
"""A class that a picture may be of."""


def classes_of_run(run: FinishedRun) -> list[str]:
    """The classes as they lie beside the weights, else beside the rows that they were trained on."""
    file = run.folder / "labels.json"
    return list(json.loads(file.read_text()) if file.is_file() else read_index(Path(run.dataset))["classes"])


def load(run: FinishedRun) -> tuple[LossModule, str]:
    from train.models.device import best_device, precision_of
    from train.recipes.images import models as pictures

    device = best_device()
    return pictures.loss_module(pictures.load(run.folder, run.base).to(device), precision_of(device), device), device


def ask(run: FinishedRun, args: argparse.Namespace) -> int:
    if not args.question:
        raise BadInput(f"run '{run.run}' has a model of pictures: it is asked about one", fix="--question FILE.jpg")
    file = Path(args.question).expanduser()
    if not args.picture and not file.is_file():
        raise BadInput(f"there is no picture {args.question}", fix="--question FILE.jpg")
    read = partial(base64.b64decode, sys.stdin.read()) if args.picture else file.read_bytes
    found = likeliest(run, Source(str(args.question), "", "", read))
    if args.json:
        answers = [{"question": args.question, "classes": found}]
        print(json.dumps({"ok": True, "run": run.run, "step": run.step, "answers": answers}))
        return 0
    width = max(len(one["class"]) for one in found)
    print(args.question)
    for one in found:
        print(f"  {one['class']:<{width}}  {100 * one['probability']:5.1f} %")
    return 0


def likeliest(run: FinishedRun, source: Source) -> list[Likely]:
    import torch

    from train.recipes.images import models as pictures

    names, size = classes_of_run(run), pictures.saved_size(run.folder)
    pixels = decoded(Seen(source, "", grey=False), edge=size, colours=3)
    if isinstance(pixels, str):
        raise BadInput(f"{source.where}: {pixels}")
    module, device = load(run)
    with torch.no_grad(), module.autocast():
        scores = pictures.scores(module.model, torch.from_numpy(pixels)[None].to(device))[0]
    best = scores.softmax(0).topk(min(SHOWN, len(names)))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [{"class": names[number], "probability": value} for number, value in pairs]


def evaluate(run: FinishedRun, most: int | None, *, as_json: bool) -> int:
    """Over all held-out pictures, or the first of them."""
    from train.models.backends import sums_over
    from train.recipes.images.recipe import mixed_up, predicted

    rows = some_held_out(open_pictures(Path(run.dataset), "eval"), Path(run.dataset))
    module, device = load(run)
    count = min(len(rows), most or len(rows))
    sums, targets = sums_over(module, rows, list(range(count)), micro_batch=32, device=device)
    loss, *metrics = (total / targets for total in sums)
    lines = mixed_up(classes_of_run(run), rows.labels[:count].tolist(), predicted(module, rows, count, 32, device))
    model = {"loss": loss, **dict(zip(module.metrics, metrics, strict=True))}
    if as_json:
        print(json.dumps({"ok": True, "rows": count, "model": model, "mixed_up": lines, "step": run.step}))
        return 0
    accuracy = "".join(f" · {name} {100 * model[name]:.1f} %" for name in module.metrics)
    print(f"{count} held-out pictures · loss {loss:.3f}{accuracy}")
    for line in lines:
        print(f"  {line['given']} ▸ {line['wrote']}")
    return 0
