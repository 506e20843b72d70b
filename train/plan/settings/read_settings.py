"""Reads the settings of a run from a file, flags or `-e`: its recipe says which there are."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

from train.cache import home_dir
from train.errors import BadInput
from train.plan.model import adapters
from train.plan.settings import own_recipe, own_settings, sweep
from train.plan.settings.evaluate import EvaluateConfig
from train.plan.settings.every_run import Holding, RunConfig
from train.plan.settings.generate import GenerateConfig
from train.plan.settings.grpo import GrpoConfig
from train.plan.settings.images import ImagesConfig
from train.plan.settings.own_settings import OwnConfig
from train.plan.settings.preference import LOSSES, PreferenceConfig
from train.plan.settings.pretrain import PretrainConfig
from train.plan.settings.sft import SftConfig
from train.plan.values import NO_VALUE, Settings, coerce, nearest

__all__ = [
    "RECIPES", "SETTINGS", "GenerateConfig", "GrpoConfig", "Holding", "ImagesConfig", "OwnConfig", "PreferenceConfig",
    "PretrainConfig", "RunConfig", "Settings", "SftConfig", "add_own_settings", "add_settings", "coerce", "config_of",
    "kind_of", "load_config", "names_of", "nearest", "read_yaml", "recipe_of",
]  # fmt: skip

RECIPES: dict[str, type[RunConfig]] = {
    "sft": SftConfig,
    "preference": PreferenceConfig,
    "grpo": GrpoConfig,
    "pretrain": PretrainConfig,
    "images": ImagesConfig,
    "generate": GenerateConfig,
    "sweep": sweep.of(SftConfig, "sft"),
    "evaluate": EvaluateConfig,
}
SETTINGS: dict[str, Field[Any]] = {
    spec.name: spec for settings in reversed(RECIPES.values()) for spec in fields(settings)
}
"""The settings of all recipes; where two have one of the same name, sft's."""
NOT_THERE = ("ppo", "rlhf")
"""What people look for and is not there."""


def recipe_of(values: Mapping[str, Any]) -> type[RunConfig]:
    name = str(values.get("recipe") or RunConfig.recipe)
    if own_recipe.is_file(name):
        return own_settings.of_file(name)
    if name.lower() in LOSSES:
        raise BadInput(f"recipe: {name} is a loss of recipe=preference", fix=f"recipe=preference loss={name.lower()}")
    if name.lower() in NOT_THERE:
        instead = "use recipe=grpo or recipe=preference; why: docs/questions.md#what-is-not-there"
        raise BadInput(f"recipe: {name}: Motley does not train by a model that judges", fix=instead)
    if name not in RECIPES:
        fix = "or a file of your own: ./mine.py"
        raise BadInput(f"recipe: '{name}' is none of {'|'.join(RECIPES)}{nearest(name, RECIPES)}", fix=fix)
    return of_sweep(str(values.get("trains") or "sft")) if name == "sweep" else RECIPES[name]


def of_sweep(trains: str) -> type[RunConfig]:
    """The settings of a sweep, which has all those of what each trial is."""
    if own_recipe.is_file(trains):
        fix = f"one run for each value: ./motley launch --recipe {trains} …"
        raise BadInput("trains: a sweep knows the recipes of Motley, and none that is a file", fix=fix)
    able = [name for name, kind in RECIPES.items() if not kind.IN_PIECES]
    if trains not in able:
        raise BadInput(f"trains: '{trains}' is none of {'|'.join(able)}{nearest(trains, able)}")
    return sweep.of(RECIPES[trains], trains)


def kind_of(recipe: str) -> type[RunConfig]:
    """What its runs have in common; a file need not be here any more."""
    return OwnConfig if own_recipe.is_file(recipe) else RECIPES[recipe]


def names_of(settings: type[RunConfig]) -> frozenset[str]:
    return frozenset(spec.name for spec in fields(settings))


def load_config(values: Settings, settings: type[RunConfig] | None = None) -> RunConfig:
    """The settings of a run from a config file or flags: text is read as the type that its field has. `settings`: where
    what the recipe is called does not say which there are."""
    settings = settings or recipe_of(values)
    specs = {spec.name: spec for spec in fields(settings)}
    for name in values:
        if name not in specs:
            raise not_its_own(name, specs, str(values.get("recipe") or specs["recipe"].default))
    read = {name: coerce(specs[name], value) for name, value in values.items()}
    for given, other in (("epochs", "max_steps"), ("max_steps", "epochs")):
        if read.get(given) is not None:
            read.setdefault(other, None)  # what a recipe of one's own has as its default gives way
    if read.get("adapter"):
        home = Path(read["home"]).expanduser() if read.get("home") else home_dir()
        read = adapters.asked(read, home, str(read.get("adapter_hash", "")))
    return settings(**read)


def not_its_own(name: str, own: Iterable[str], recipe: str) -> BadInput:
    """The error for a setting that belongs to another recipe, or to none."""
    owner = next((other for other, kind in RECIPES.items() if name in names_of(kind)), "")
    if not owner:
        hint = nearest(name, [*own, *SETTINGS])
        return BadInput(f"unknown setting '{name}'{hint}", fix="see: python -m train run --help")
    return BadInput(
        f"{name}: this belongs to recipe={owner}, and the run has recipe={recipe}",
        fix=f"leave {name} out, or give recipe={owner} as well",
    )


def add_settings(parser: argparse.ArgumentParser, names: Iterable[str]) -> None:
    """Adds a flag for each of these settings; config_of reads them back."""
    for name in names:
        spec = SETTINGS[name]
        text = spec.metadata["help"] + ("" if spec.default in (None, "") else f" (default {spec.default})")
        flag = f"--{name.replace('_', '-')}"
        text = text.replace("%", "%%")  # argparse fills in what follows one
        parser.add_argument(flag, dest=name, metavar="VALUE", default=argparse.SUPPRESS, help=text)


def add_own_settings(parser: argparse.ArgumentParser, recipe: str) -> None:
    """Flags of the settings of a recipe that is a file, which are known only when it is."""
    known = {action.dest for action in parser._actions}
    if "recipe" in known and own_recipe.is_file(recipe):
        for name in names_of(recipe_of({"recipe": recipe})) - known:
            parser.add_argument(f"--{name.replace('_', '-')}", dest=name, metavar="VALUE", default=argparse.SUPPRESS)


def config_of(args: argparse.Namespace) -> RunConfig:
    given = vars(args)
    known = {*SETTINGS, *names_of(recipe_of(given))}
    return load_config({name: value for name, value in given.items() if name in known})


def read_yaml(file: Path, kind: str) -> Settings:
    """The settings in a file, whatever they mean."""
    import yaml

    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise BadInput(f"the {kind} cannot be read: {error.strerror}", f"file: {file}") from None
    except UnicodeDecodeError:
        raise BadInput(f"the {kind} is not text in UTF-8", f"file: {file}", "save it again in UTF-8") from None
    except (yaml.YAMLError, *NO_VALUE) as error:
        raise BadInput(f"the {kind} is not YAML", f"file: {file}", " ".join(str(error).split())) from None
    if not isinstance(values, dict):
        raise BadInput(f"the {kind} holds no settings", f"file: {file}", "write lines like: rows_per_step: 16")
    return {str(name): value for name, value in values.items()}
