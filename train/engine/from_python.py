"""Training from Python, on this machine; the same call under torchrun trains over its processes, with the curve of one.

    import motley
    made = motley.sft(model="smollm2-135m", dataset="notes.jsonl", epochs=3)
    made = motley.fit("mine.py", {"max_steps": 200, "dataset": "table.csv"})
    made.model, made.folder, made.loss, made.held_out

The recipe of `fit` is a file, or a module or any object that has rows, model and loss. What it needs lies in a file all
the same: by that file's content a run is known.
"""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from torch import distributed, nn

from train.engine.run import train_run
from train.engine.shutdown import Leaver
from train.errors import BadInput
from train.plan.run_name import as_name
from train.plan.settings import own_recipe, own_settings
from train.plan.settings.read_settings import OwnConfig, RunConfig, Settings, SftConfig, load_config
from train.recipes import Recipe
from train.recipes.own.file import Functions, functions_of, load
from train.recipes.own.recipe import OwnRecipe


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    model: nn.Module
    """The trained model, in eval mode, on the device where it was trained."""
    folder: Path | None
    """The folder of its weights, the recipe, the settings and a card; None on a process that writes no files."""
    loss: float | None
    """The loss of the last step; None on a process that writes no files."""
    held_out: float | None
    """The loss of the last evaluation; None where nothing is held out."""
    steps: int


def sft(*, model: str | os.PathLike[str], dataset: str | os.PathLike[str], **settings: Any) -> Fitted:
    """Fine-tunes a language model, by the settings of `train run`. The run is called MODEL-DATASET where `run` is not
    given: the same call continues it."""
    name = as_name(f"{Path(model).name}-{Path(dataset).stem}")
    values = texts({"run": name, **settings, "model": model, "dataset": dataset})
    return trained(load_config(values, SftConfig))


def fit(recipe: str | os.PathLike[str] | object, settings: Mapping[str, Any] | None = None) -> Fitted:
    functions, kind = read(recipe)
    config = checked(kind, functions.file, dict(settings or {}))
    return trained(config, cast(Recipe, OwnRecipe(config, functions)))


def trained(config: RunConfig, recipe: Recipe | None = None) -> Fitted:
    """Trains a run to its end. Ctrl-C saves what is finished, and then is a KeyboardInterrupt as everywhere."""
    if distributed.is_initialized():
        raise BadInput("a run was made before in this process", fix="under torchrun: one call a process")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ["MOTLEY_HOME"] = str(config.home_folder)  # rows are made there
    main = threading.current_thread() is threading.main_thread()
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1  # else the main thread may wait for a peer that is gone
    leaver = Leaver(interrupts=alone) if main else None
    try:
        run, ended = train_run(config, leaver, recipe=recipe)
    finally:
        if leaver:
            leaver.release()
    return Fitted(
        model=run.module.model.eval(),
        folder=ended.folder if ended else None,
        loss=ended.loss if ended else None,
        held_out=run.milestones.newest,
        steps=run.step,
    )


def read(recipe: object) -> tuple[Functions, type[OwnConfig]]:
    if isinstance(recipe, (str, os.PathLike)):
        file = own_recipe.read(str(recipe))
        return load(str(file.path)), own_settings.settings_class(file.settings, str(file.path))
    try:
        whose = recipe if inspect.ismodule(recipe) or inspect.isclass(recipe) else type(recipe)
        path = Path(inspect.getsourcefile(whose) or "").resolve()
    except TypeError:
        path = Path()
    if not path.is_file():
        raise BadInput(
            "recipe: what it needs lies in no file", fix="write it to a file, and give that: motley.fit('mine.py')"
        )
    own = own_recipe.checked(getattr(recipe, own_recipe.SETTINGS, {}), f"file: {path}")
    return functions_of(recipe, path), own_settings.settings_class(own, str(path))


def checked(kind: type[OwnConfig], file: Path, settings: Mapping[str, object]) -> OwnConfig:
    values = {"run": own_settings.title_of(file), **texts(settings), "recipe": str(file)}
    return cast(OwnConfig, load_config(values, kind))


def texts(values: Mapping[str, object]) -> Settings:
    return {name: str(value) if isinstance(value, os.PathLike) else value for name, value in values.items()}
