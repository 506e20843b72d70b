"""Each run that is shown as a file can be launched as it stands: read, asked for and planned, with no word of error.
The recipe that is shown is the one that runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from console import launch_request, run_file
from tests.support import ROOT
from train.plan.launch.plan_cards import what_if
from train.plan.model import catalogue
from train.plan.settings import own_recipe, request

RUNS = sorted(
    path.name for path in (ROOT / "examples").glob("*.yml") if re.search(r"(?m)^model:|^recipe:", path.read_text())
)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the checkout, as ./motley and ansible-playbook run; with the pictures that a package would bring."""
    for name in ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"):
        (tmp_path / name).touch()
    entry = catalogue.catalogue()["datasets"]["fashion-mnist"]
    monkeypatch.setitem(entry, "folder", str(tmp_path))
    monkeypatch.chdir(ROOT)


def test_there_is_one_of_each_recipe() -> None:
    recipes = {values(name).get("recipe", "sft") for name in RUNS}
    assert recipes >= {"sft", "preference", "pretrain", "images", "grpo"}


def values(name: str) -> dict[str, Any]:
    return run_file.read(ROOT / "examples" / name)


@pytest.mark.parametrize("name", RUNS)
def test_it_is_a_request_and_a_plan(name: str) -> None:
    asked = launch_request.read(values(name), ["gpu-master", "gpu-worker-1"])
    assert asked.follow and not asked.named_nodes
    wanted = request.read(asked.values, what="variable")
    assert wanted.given.keys() == values(name).keys()
    answer = what_if("24,8", asked.values)
    assert answer.fits, answer.lines


@pytest.mark.parametrize("name", RUNS)
def test_it_says_how_it_is_launched(name: str) -> None:
    assert f"./motley launch -f examples/{name}" in (ROOT / "examples" / name).read_text()


def test_the_page_shows_the_recipe_as_it_runs_and_it_is_short_enough_to_be_read() -> None:
    file = ROOT / "examples/table.py"
    text = file.read_text()
    shown = "".join(f"    {line}" if line.strip() else line for line in text.splitlines(keepends=True))
    assert shown in (ROOT / "docs/recipes.md").read_text()
    assert len(text.splitlines()) <= 40
    assert own_recipe.read(str(file)).settings["target"] == "kwh"
