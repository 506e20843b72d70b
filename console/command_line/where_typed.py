"""Where a file that somebody names lies: in the folder where it was typed, though ./motley runs in the checkout."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from train.plan.model import data_sets
from train.plan.model.catalogue import catalogue
from train.plan.settings import file_settings, own_recipe, task_files
from train.plan.settings.picture_sets import SUFFIXES
from train.plan.settings.rewards import file_of, with_file

ROOT = Path(__file__).parents[2]
PLACES = (*file_settings.PLACES, "tasks")
"""Launch variables whose value may be a file or a folder of this computer."""
CATALOGUES = {"model": "models", "tokenizer": "models", "dataset": "datasets", "prompts": "datasets"}
"""Where the names stand that a value may have instead."""


def from_where_it_was_called(args: argparse.Namespace, given: set[str], folder: Path) -> None:
    """./motley itself runs in the checkout; what was typed may lie elsewhere."""
    if "results" in given:
        args.results = folder / args.results
    if "inventory" in given and ((folder / args.inventory).exists() or not (ROOT / args.inventory).exists()):
        args.inventory = str(folder / args.inventory)
    if "out" in given:
        args.out = str(folder / Path(args.out).expanduser())
    for kind in given & {*PLACES, "prompts", "run_file", *(["question"] if is_picture(args) else [])}:
        setattr(args, kind, moved(kind, getattr(args, kind), folder))
    if "settings" in given:
        args.settings = [moved_setting(setting, folder) for setting in args.settings]
    if getattr(args, "words", []) and not args.module:
        args.words[0] = str(folder / args.words[0])


def is_picture(args: argparse.Namespace) -> bool:
    return str(getattr(args, "question", "")).lower().endswith(SUFFIXES)


def moved_setting(setting: str, folder: Path) -> str:
    if setting.startswith("@"):
        return "@" + moved("", setting[1:], folder)
    kind, _, value = setting.partition("=")
    return f"{kind}={moved(kind, value, folder)}" if kind in PLACES else setting


def moved(kind: str, value: str, folder: Path) -> str:
    """A name that Motley knows means what it means everywhere."""
    if kind == "recipe" and not own_recipe.is_file(value):
        return value
    if kind == "rewards":
        file = file_of(value)
        return with_file(value, moved("", file, folder)) if file else value
    if kind == "tasks":
        names = task_files.names_in(value)
        return ",".join(str(folder / Path(name).expanduser()) if task_files.is_file(name) else name for name in names)
    if kind in ("dataset", "prompts") and not data_sets.is_here(value, folder):
        return data_sets.moved(value, folder)
    names = catalogue()[CATALOGUES[kind]] if kind in CATALOGUES else {}
    known = [*names, *(alias for entry in names.values() for alias in entry.get("aliases", ()))]
    if not value or value in known or (kind == "tokenizer" and value in file_settings.TOKENIZERS):
        return value
    return str(folder / value) if os.path.exists(folder / value) else value  # noqa: PTH110  it takes a text too long
