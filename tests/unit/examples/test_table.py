"""The recipe that we show is the one that runs, and short enough to be read."""

from __future__ import annotations

from tests.support import ROOT
from train.plan.settings import own_recipe

FILE = ROOT / "examples/table.py"


def test_the_page_shows_it_as_it_is() -> None:
    text = FILE.read_text()
    shown = "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    assert shown in (ROOT / "docs/recipes.md").read_text()
    assert len(text.splitlines()) <= 40
    assert own_recipe.read(str(FILE)).settings["target"] == "kwh"
