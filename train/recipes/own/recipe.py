"""A recipe of one's own, a file or an object with the same functions (recipes/__init__.py says what each part is).

rows     what its `rows` gives, as arrays; the head makes them once
start    the folder of these rows, with the file itself
build    its `model`, tried on a few rows before it may train (dry_step.py)
export   all weights, the file, and the settings that it was trained with
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from safetensors.torch import load_file
from torch import nn

from train.data.rows import read_index
from train.errors import BadInput
from train.models.backends import Batch, LossModule, at_rest, autocast, to_tensors
from train.models.weights import WEIGHTS, Named, WeightGroup, write_whole
from train.plan.placement.decisions import Decisions
from train.plan.settings.own_settings import OwnConfig
from train.recipes import model_card
from train.recipes.own import dry_step
from train.recipes.own import make_rows as own_rows
from train.recipes.own.file import Functions, load
from train.recipes.own.rows import RECIPE, OwnRows, open_rows

if TYPE_CHECKING:
    from train.engine.loop import Run

SETTINGS = "settings.json"
AT_A_TIME = 64
"""Rows of an evaluation's metrics."""


class OwnRecipe:
    def __init__(self, config: OwnConfig, functions: Functions | None = None) -> None:
        self.functions = functions or load(config.recipe)
        self.trained_on: OwnRows | None = None

    def rows(self, config: OwnConfig, say: Callable[[str], None]) -> tuple[OwnRows, OwnRows]:
        folder = self.start(config, lambda _: None)
        return open_rows(folder), open_rows(folder, "eval")

    def start(self, config: OwnConfig, say: Callable[[str], None]) -> Path:
        folder = Path(config.dataset).expanduser()
        if not config.dataset or not (folder / "index.json").exists():
            return own_rows.prepare(config, say, functions=self.functions)
        own_rows.require_its_rows(config, folder)
        return folder

    def start_for_trial(self, config: OwnConfig) -> None:
        raise BadInput("how fast a recipe of your own is shows only while it trains: there are no rows before")

    def shape(self, config: OwnConfig, start: Path | None) -> None:
        """Nothing is known of its memory."""

    def build(self, config: OwnConfig, decisions: Decisions, start: Path, device: str, row_length: int) -> LossModule:
        model = own_rows.build_model(self.functions, config, start).to(device)
        self.trained_on = open_rows(start)
        dry_step.check(self.functions, model, self.trained_on, device)
        return LossModule(model, self.functions.loss_sum, partial(autocast, decisions.precision, device))

    def full_rows(self, count: int, length: int, vocabulary: int, device: str, seed: int = 0) -> Batch:
        """The recipe's own rows, again from the first one where there are too few: one is as long as the other."""
        assert self.trained_on
        return to_tensors(self.trained_on.batch([i % len(self.trained_on) for i in range(count)]), device)

    def optimized(self, config: OwnConfig, named: Named) -> list[WeightGroup]:
        return [{"params": list(named.values())}]

    def identity(self, config: OwnConfig, start: Path) -> dict[str, str]:
        """Nothing is added: the hash of the recipe is a setting."""
        return {}

    def samples(self, run: Run) -> list[dict[str, str]]:
        """The recipe's metrics on what is held out."""
        held_out = cast(OwnRows, run.held_out)
        some = list(range(min(len(held_out), run.config.eval_rows)))
        found = measured(self.functions, run.module, held_out, some, run.device)
        return [{"given": name, "wrote": f"{value:.4g}"} for name, value in found.items()]

    def export(self, run: Run, folder: Path) -> None:
        """All of the model's tensors, also those that are not trained: so that torch loads them into it as they are."""
        write_whole(folder, run.module.model, run.trained.named)
        config, rows = cast(OwnConfig, run.config), cast(OwnRows, run.rows).folder.parent
        shapes = {name: facts["shape"] for name, facts in read_index(rows)["columns"].items()}
        (folder / SETTINGS).write_text(json.dumps(config.own | {"shapes": shapes}, indent=1) + "\n")
        shutil.copyfile(config.recipe, folder / RECIPE)

    def card(self, run: Run) -> str:
        return model_card.own_card(run)


made = OwnRecipe


def measured(functions: Functions, module: LossModule, rows: OwnRows, some: list[int], device: str) -> dict[str, float]:
    """The mean of each metric over these rows."""
    if not functions.metrics or not some:
        return {}
    sums: dict[str, float] = {}
    with at_rest(module), torch.no_grad(), module.autocast():
        for first in range(0, len(some), AT_A_TIME):
            batch = to_tensors(rows.batch(some[first : first + AT_A_TIME]), device)
            for name, total in functions.metric_sums(module.model, batch).items():
                sums[name] = sums.get(name, 0.0) + total
    return {name: total / len(some) for name, total in sums.items()}


def weights_into(model: nn.Module, folder: Path) -> None:
    """Loads the weights of a result or of a checkpoint, which has what is trained alone."""
    wrong = model.load_state_dict(load_file(folder / WEIGHTS), strict=False).unexpected_keys
    if wrong:
        raise BadInput(f"the model has no {wrong[0]}, which was trained", f"folder: {folder}")
