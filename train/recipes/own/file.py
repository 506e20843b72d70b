"""The functions of a recipe of one's own, and calling them so that what goes wrong in them is told with its line."""

from __future__ import annotations

import random
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from train.errors import BadInput
from train.plan.values import Settings

EACH_ROW = (
    "one number for each row: reduction='none' in torch's losses, then .flatten(1).mean(1) where a row has several"
)
ROW_METRIC = (
    "one number for each row, such as (guess == label).float(): their mean is made of all rows, on all nodes alike"
)


@dataclass(frozen=True, kw_only=True)
class Functions:
    file: Path
    rows: Callable[[Settings], Any]
    model: Callable[[Settings], Any]
    loss: Callable[[nn.Module, dict[str, Tensor]], Any]
    metrics: Callable[[nn.Module, dict[str, Tensor]], Any] | None = None

    def loss_sum(self, model: nn.Module, batch: dict[str, Tensor]) -> Tensor:
        return per_row(self.loss(model, batch), rows_of(batch), "loss").float().sum()

    def metric_sums(self, model: nn.Module, batch: dict[str, Tensor]) -> dict[str, float]:
        found = self.metrics(model, batch) if self.metrics else {}
        if not isinstance(found, dict):
            raise BadInput(f"recipe: metrics gives {type(found).__name__}, not names with their numbers")
        sums = {name: per_row(v, rows_of(batch), f"metrics: {name}", ROW_METRIC) for name, v in found.items()}
        return {name: float(values.double().sum()) for name, values in sums.items()}


def rows_of(batch: dict[str, Tensor]) -> int:
    return len(next(iter(batch.values())))


def per_row(found: Any, count: int, what: str, each_row: str = EACH_ROW) -> Tensor:
    """A mean over the batch would weigh a row by how many stand beside it, which every node has otherwise."""
    if not isinstance(found, Tensor):
        raise BadInput(f"recipe: {what} gives {type(found).__name__}, not a tensor", fix=each_row)
    if found.shape != (count,):
        shape = "one number" if not found.dim() else f"a tensor of shape {tuple(found.shape)}"
        raise BadInput(f"recipe: {what} gives {shape} for {count} rows", fix=each_row)
    return found


def load(name: str) -> Functions:
    """Without a compiled copy beside it: what lies there is compared between nodes."""
    file = Path(name)
    module = ModuleType(f"motley_recipe_{file.stem}")
    module.__file__ = str(file)
    sys.modules[module.__name__] = module  # dataclasses look there
    call("the file itself", file, lambda: exec(compile(file.read_bytes(), str(file), "exec"), vars(module)))  # noqa: S102
    return functions_of(module, file)


def functions_of(given: Any, file: Path) -> Functions:
    """The functions of a module, or of any object that has them."""
    if missing := [name for name in ("rows", "model", "loss") if not callable(getattr(given, name, None))]:
        raise BadInput(f"recipe: it does not give {' and '.join(missing)}", f"file: {file}")
    found = {name: getattr(given, name) for name in ("rows", "model", "loss")}
    return Functions(file=file, **found, metrics=getattr(given, "metrics", None))


def call(what: str, file: Path, function: Callable[..., Any], *values: Any) -> Any:
    try:
        return function(*values)
    except torch.OutOfMemoryError:
        raise
    except BadInput as wrong:  # what it gave is not what it should be
        what_is_wrong, *fix = str(wrong).splitlines()
        raise BadInput(what_is_wrong, f"file: {file}", *fix) from None
    except Exception as error:
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f", line {frames[-1].lineno}" if frames else ""
        said = " ".join(str(error).split())
        unset = isinstance(error, FileNotFoundError) and error.filename == ""
        fix = ["fix: --dataset with the file or folder that it reads"] if unset else []
        raise BadInput(f"recipe: {what} failed: {type(error).__name__}: {said}", f"file: {file}{line}", *fix) from error


def seed_all(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % (1 << 32))
