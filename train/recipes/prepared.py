"""Where the rows of a run lie: in the folder that its settings name, else in one that is made of what they name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from train.plan.model import data_sets
from train.plan.settings.read_settings import RunConfig


def prepared(config: RunConfig, say: Callable[[str], None]) -> Path:
    """The folder of rows; what is no such folder is prepared first, once."""
    folder = Path(config.dataset).expanduser()
    if data_sets.is_here(f"{folder}/index.json"):
        return folder
    made: Path = importlib.import_module(config.PREPARES).prepare(config, say)
    return made
