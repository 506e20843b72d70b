"""What a recipe of one's own trains on: its `rows` is called once, and what it gives is kept as arrays. Before they are
kept a step is tried with them (dry_step.py): a launch then ends here, and not on every node.

    python -m train prepare --recipe ./mine.py --dataset table.csv
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
from torch import nn

from train.cache import build_once
from train.data.prepare import rows_folder
from train.data.rows import FORMAT, read_index
from train.data.run_data import data_hash, dataset_files
from train.errors import BadInput
from train.plan.model.catalogue import Dataset
from train.plan.settings.own_settings import OwnConfig
from train.plan.values import Settings
from train.recipes.own import dry_step
from train.recipes.own.file import Functions, call, load, seed_all
from train.recipes.own.rows import FEWEST, RECIPE, Columns, as_columns, open_rows, split_by_content, write_rows

Say = Callable[[str], None]


def prepare(
    config: OwnConfig,
    say: Say,
    *,
    out: str | None = None,
    date: str = "",
    functions: Functions | None = None,
) -> Path:
    """The folder of rows; made only if it is not there yet. What a file is, the recipe knows."""
    data = config.data()
    files = dataset_files(data) if config.dataset else []
    say(f"data      {data.reason}")
    key = {"format": FORMAT, "data": [*map(data_hash, files)], **made_with(config)}
    folder = rows_folder(config.title, key, out)
    known = folder.exists()

    def build(draft: Path) -> None:
        made = functions or load(config.recipe)
        train, held_out = call_rows(made, config, place_of(data, files))
        write_rows(draft, train, held_out, key)
        shutil.copyfile(config.recipe, draft / RECIPE)
        dry_step.check(made, build_model(made, config, draft), open_rows(draft), "cpu")

    build_once(folder, build)
    index = read_index(folder)
    columns = ", ".join(f"{name} {facts['shape'] or ''} {facts['type']}" for name, facts in index["columns"].items())
    train, held_out = (index["splits"][split]["rows"] for split in ("train", "eval"))
    say(f"rows      {train}, and {held_out} held out: {columns}")
    say(f"folder    {folder}{' (was there already)' if known else ''}")
    return folder


def made_with(config: OwnConfig) -> dict[str, object]:
    return {"recipe": config.recipe_hash, "settings": config.own | {"eval_fraction": config.eval_fraction}}


def require_its_rows(config: OwnConfig, folder: Path) -> None:
    made_from = read_index(folder).get("made_from", {})
    if any(made_from.get(name) != value for name, value in made_with(config).items()):
        raise BadInput(
            "these rows were made by another recipe, or with other settings of it",
            f"folder: {folder}",
            "give the data itself as the dataset: the rows are then made again",
        )


def place_of(data: Dataset, files: list[Path]) -> str:
    if not files:
        return ""
    folder = data.folder or files[0].parent
    return str(files[0] if len(files) == 1 and not data.folder else folder)


def call_rows(functions: Functions, config: OwnConfig, place: str) -> tuple[Columns, Columns]:
    """What is trained on, and what is held out."""
    return cast(
        tuple[Columns, Columns],
        call("rows", functions.file, lambda: rows_of(functions.rows, config, config.own | {"dataset": place})),
    )


def rows_of(rows: Callable[[Settings], Any], config: OwnConfig, settings: Settings) -> tuple[Columns, Columns]:
    seed_all(config.seed)
    given = rows(settings)
    if isinstance(given, tuple) and len(given) == 2:
        train, held_out = as_columns(given[0], "rows"), as_columns(given[1], "rows, held out")
        if kinds(train) != kinds(held_out):
            raise BadInput("recipe: rows: what is held out has other names, shapes or types than what is trained on")
    else:
        train, held_out = split_by_content(as_columns(given, "rows"), config.eval_fraction)
    if (count := len(next(iter(train.values())))) < FEWEST:
        raise BadInput(f"recipe: rows gives {count} to train on: that is too few", fix=f"at least {FEWEST}")
    return train, held_out


def kinds(columns: Columns) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    return {name: (column.shape[1:], column.dtype) for name, column in columns.items()}


def build_model(functions: Functions, config: OwnConfig, rows: Path) -> nn.Module:
    """Builds the model on the processor, its first weights by the seed, all that is trained in fp32."""
    seed_all(config.seed)
    shapes = {name: facts["shape"] for name, facts in read_index(rows)["columns"].items()}
    model = call("model", functions.file, functions.model, config.own | {"shapes": shapes})
    if not isinstance(model, nn.Module):
        raise BadInput(f"recipe: model gives {type(model).__name__}, not a torch.nn.Module", f"file: {functions.file}")
    trained = [p for p in model.parameters() if p.requires_grad]
    if not trained:
        raise BadInput("recipe: the model has no weight that is trained", f"file: {functions.file}")
    if any(isinstance(p, nn.UninitializedParameter) for p in trained):
        what = "recipe: the model has lazy layers, whose weights are not there before its first rows"
        raise BadInput(what, f"file: {functions.file}", 'give the size: settings["shapes"] has that of a row')
    for weight in trained:
        weight.data = weight.data.float()
    return model.train()
