"""Names of a run's files and folders."""

from __future__ import annotations

from train.plan.settings.config import RECIPES
from train.runlog import paths


def test_what_any_recipe_makes_is_found_below_its_results() -> None:
    assert {kind.RESULT for kind in RECIPES.values()} == set(paths.MADE)
