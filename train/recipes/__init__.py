"""What is trained: one folder for each recipe, and nothing else knows which of them is at work. Its settings are in
train/plan/settings; its recipe.py gives what is below. A file of one's own becomes one as well (own/).

rows(config, say)     what is trained and what is held out
start(config, say)    a folder with what the run begins from: a base model, or a tokenizer
start_for_trial(…)    the same for a measurement of speed, before there are rows
shape(config, start)  of the model, as far as its memory is known
build(…)              the model as a function from a micro-batch to its summed loss
optimized(…)          what the optimizer steps, in groups, each with its own options
identity(…)           what decides the loss curve of what the run begins from
samples(run)          lines of an evaluation, for who watches: what the model was given, what it wrote or took that for
export(run, folder)   what the result needs beside the trained weights
card(run)             what the result says of itself to others

A recipe that keeps something is a class, and made(config) makes it; another is its module.

A recipe that makes the rows of a step with the model (grpo: answers; preference: what the base says of them) has six
more:

ready(tell)           waits for what it has started beside the run, and tells what is waited for
prepare_step(run, …)  the rows of the next step, made by all nodes together
resumed(run, …)       the same of a run that resumes between making them and the last step on them (grpo)
answer_s(config, …)   the seconds that making one of them takes, for a measurement of speed
held_out(run)         in place of the loss on rows that are held out
close()               ends what it has started beside the run
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from train.plan.model import data_sets
from train.plan.settings import own_recipe

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from train.data.rows import Rows
    from train.engine.loop import Run
    from train.models.backends import Batch, LossModule
    from train.models.weights import Named, WeightGroup
    from train.plan.model.catalogue import AnyFacts
    from train.plan.placement.decisions import Decisions
    from train.plan.settings.read_settings import RunConfig
    from train.pool import PoolRecipe
    from train.runlog.event_types import MadeRows

Say = Callable[[str], None]


class Recipe(Protocol):
    def rows(self, config: RunConfig, say: Say) -> tuple[Rows, Rows]: ...
    def start(self, config: RunConfig, say: Say) -> Path: ...
    def start_for_trial(self, config: RunConfig) -> Path | None: ...
    def shape(self, config: RunConfig, start: Path | None) -> AnyFacts | None: ...
    def build(
        self, config: RunConfig, decisions: Decisions, start: Path | None, device: str, row_length: int
    ) -> LossModule: ...
    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch: ...
    def optimized(self, config: RunConfig, named: Named) -> list[WeightGroup]: ...
    def identity(self, config: RunConfig, start: Path) -> dict[str, str]: ...
    def samples(self, run: Run) -> list[dict[str, str]]: ...
    def export(self, run: Run, folder: Path) -> None: ...
    def card(self, run: Run) -> str: ...


class StepRows(Protocol):
    """What a step trains on, by its number within the step."""

    @property
    def made_s(self) -> float:
        """Seconds in which this node has made its own."""

    @property
    def waited_s(self) -> float: ...
    @property
    def targets(self) -> NDArray[np.int32]: ...
    def batch(self, indices: list[int], position: int = 0) -> dict[str, NDArray[Any]]: ...
    def token_count(self, indices: list[int]) -> int: ...
    def told_of(self, seen: list[float]) -> MadeRows:
        """What the step event says of it; `seen`: the sums of the recipe's metrics over its rows."""

    def state(self, number: int) -> object:
        """What a checkpoint keeps of it, where the draw of rows with this number is trained on still; often None."""


class Making(Protocol):
    def ready(self, tell: Say) -> None: ...
    def prepare_step(self, run: Run, rows: list[int], slices: Sequence[tuple[int, int]]) -> StepRows: ...
    def resumed(self, run: Run, rows: list[int], state: object) -> StepRows: ...
    def answer_s(self, config: RunConfig, module: LossModule) -> float: ...
    def held_out(self, run: Run) -> tuple[float, int, dict[str, float]] | None: ...
    def close(self) -> None: ...


def prepared(config: RunConfig, say: Say) -> Path:
    """The folder of rows; what is no such folder is prepared first, once."""
    folder = Path(config.dataset).expanduser()
    if data_sets.is_here(f"{folder}/index.json"):
        return folder
    made: Path = importlib.import_module(config.PREPARES).prepare(config, say)
    return made


def in_pieces(config: RunConfig) -> PoolRecipe:
    """The recipe of a run whose work comes in pieces."""
    found: PoolRecipe = importlib.import_module(f"train.recipes.{config.recipe}.recipe").made(config)
    return found


def making(recipe: Recipe) -> Making | None:
    return cast(Making, recipe) if hasattr(recipe, "prepare_step") else None


def of(config: RunConfig) -> Recipe:
    """A module, or what it makes of the settings."""
    name = "own" if own_recipe.is_file(config.recipe) else config.recipe
    module: Any = importlib.import_module(f"train.recipes.{name}.recipe")
    return cast(Recipe, module.made(config) if hasattr(module, "made") else module)
