"""A recipe of one's own, as the controller sees it: looked at, never run."""

from pathlib import Path

import pytest
import yaml

from console import plan_view
from tests.support.plans import decided, files_of, handed_on, look, ran
from train.errors import BadInput
from train.plan.launch.launch_plan import RecipeFile
from train.plan.settings import own_recipe
from train.plan.settings.read_settings import load_config

MINE = """
import torch
settings = {"width": 64, "deep": False, "word": "a", "rate": 0.5, "learning_rate": 1, "rows_per_step": 24}
def rows(settings):
    raise SystemExit("it was run")
def model(settings, extra=1): ...
def loss(model, batch): ...
raise SystemExit("it was run")
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_its_settings_are_read_and_checked_without_running_it(mine):
    config = load_config({"recipe": str(mine), "width": "16", "deep": "yes", "max_steps": "7"})
    assert config.own == {"width": 16, "deep": True, "word": "a", "rate": 0.5, "seed": 3407}
    assert (config.learning_rate, config.rows_per_step, config.max_steps) == (1.0, 24, 7)
    assert config.recipe == str(mine) and config.recipe_hash == own_recipe.read(str(mine)).sha256
    mine.write_text(MINE.replace('"width"', '"max_steps": 9, "width"'))
    longer = load_config({"recipe": str(mine), "epochs": 2})
    assert (longer.max_steps, longer.epochs) == (None, 2.0), "what is given stands in place of the recipe's default"
    assert load_config({"recipe": str(mine)}).max_steps == 9
    with pytest.raises(BadInput, match="width: 'wide' is not a whole number"):
        load_config({"recipe": str(mine), "width": "wide"})
    with pytest.raises(BadInput, match="unknown setting 'widht', did you mean 'width'"):
        load_config({"recipe": str(mine), "widht": 3})
    with pytest.raises(BadInput, match=r"lora_r: this belongs to recipe=sft, and the run has recipe=.*mine\.py"):
        load_config({"recipe": str(mine), "lora_r": 3})


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("def loss(model, batch): ...", "", "it does not give loss"),
        ("def loss(model, batch): ...", "", "add: def loss(model, batch):"),
        ("def loss(model, batch): ...", "def loss(batch): ...", "loss is called with model and batch"),
        ("def rows(settings):", "def rows(settings, *, path):", "rows is called with settings"),
        ("def rows(settings):", "def rows(settings:", "this is not Python"),
        ('{"width": 64', '{"width": int(64)', "settings is not plain names with plain values"),
        ('"width": 64', '"width": [64]', "width is no number, word or True/False"),
        ('"width": 64', '"Width": 64', "'Width' cannot name a setting"),
        ('"width": 64', '"lambda": 64', "'lambda' cannot name a setting: it is a word of Python"),
        ('"width": 64', '"home": 64', "home has another meaning here"),
        ('"width": 64', '"draws": 64', "draws has another meaning here"),
        ('"learning_rate": 1', '"learning_rate": "fast"', "learning_rate: 'fast' is not a number"),
        ("import torch", "import helper", "it imports helper, which lies beside it"),
        ("import torch", "from .helper import x", "it imports what lies beside it"),
        ("import torch", "import json", ""),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_line(mine, old, new, said):
    for name in ("helper", "json"):
        (mine.parent / f"{name}.py").write_text("x = 1\n")
    assert old in MINE
    mine.write_text(MINE.replace(old, new))
    if not said:
        assert load_config({"recipe": str(mine)})
        return
    with pytest.raises(BadInput) as refused:
        load_config({"recipe": str(mine)})
    assert said in str(refused.value)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(BadInput, match=r"there is no file ./none\.py"):
        load_config({"recipe": "./none.py"})


def test_the_head_gets_the_file_and_every_node_a_copy_with_the_rows(mine, tmp_path):
    table = tmp_path / "my table.csv"
    table.write_text("a,b")
    found = decided({"recipe": str(mine), "dataset": str(table), "width": "8"}, look(), look())
    data = handed_on(found, "mine-1")
    assert found.run == "mine-my-table" and found.lacking == [] and data.calibrate == []
    sha256 = own_recipe.read(str(mine)).sha256
    place = f"/home/user/ai-cluster/data/raw/recipe-{sha256[:12]}"
    files = {"mine.py": {"size": len(MINE), "sha256": sha256}}
    assert data.recipe == RecipeFile(folder=str(tmp_path), files=files, place=place)
    assert f"--recipe={place}/mine.py" in data.prepare and "--width=8" in data.prepare
    assert "--dataset=/home/user/ai-cluster/data/raw/my table/my table.csv" in data.prepare
    settings = yaml.safe_load(files_of(data, "b")["config/training_config.yaml"])
    assert settings["recipe"] == "/home/user/ai-cluster/data/processed/mine-1/recipe.py"
    assert (settings["recipe_hash"], settings["width"], settings["deep"]) == (sha256, 8, False)
    there = load_config(settings | {"recipe": str(mine)})
    assert there.own == {"width": 8, "deep": False, "word": "a", "rate": 0.5, "seed": 3407}
    with pytest.raises(BadInput, match="is not the file that the run was launched with"):
        load_config(settings | {"recipe": str(mine), "recipe_hash": sha256[::-1]})


def test_a_folder_comes_whole(mine, tmp_path):
    folder = tmp_path / "parts"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.bin", "deep/b.csv", ".hidden"):
        (folder / name).write_text("1")
    data = handed_on(decided({"recipe": str(mine), "dataset": str(folder)}, look()))
    assert data.dataset.files == ["a.bin", "deep/b.csv"]
    assert "--dataset=/home/user/ai-cluster/data/raw/parts" in data.prepare


def test_the_plan_says_what_it_does_not_know_and_shares_by_speed(mine):
    first = decided({"recipe": str(mine)}, look(), look())
    shown = "\n".join(plan_view.lines(first))
    assert "(their number is not known yet)" in shown and "? of " in shown and "found while it runs" in shown
    assert "not known before the model is built" in shown and "tokens" not in shown.split("node")[0]
    data = handed_on(first)
    assert data.memory["parameters"] is None
    assert data.raw == "" and "--dataset=" in data.prepare and data.run == "mine", "without data nothing is brought"
    launched = ran(first)["runs"]["mine"]["launched"]
    measured = [{"run": "mine", "launched": launched, "speeds": {"a": 30.0, "b": 10.0}}]
    again = decided({"recipe": str(mine), "run": "again"}, look(measured=measured), look(measured=measured))
    assert again.prediction and again.prediction.together.shares == {"a": 18, "b": 6}
    shown = "\n".join(plan_view.lines(again))
    assert "18  (30.00 rows/s)" in shown and "s a step and the exchange" in shown
    wider = {"recipe": str(mine), "run": "wider", "width": 128}
    assert not decided(wider, look(measured=measured), look(measured=measured)).prediction, "it has another speed"


def test_another_file_is_another_run(mine, tmp_path):
    there = ran(decided({"recipe": str(mine), "run": "qa", "width": 8}, look()))
    from_here = {"qa": there["runs"]["qa"]["launched"]}
    assert decided({"resume": "qa"}, there, launched=from_here).settings["width"] == 8
    elsewhere = tmp_path / "deep"
    elsewhere.mkdir()
    (elsewhere / "mine.py").write_text(MINE)
    assert decided({"recipe": str(elsewhere / "mine.py"), "run": "qa", "width": 8}, there).request.step == 12
    with pytest.raises(BadInput, match="width: the run was launched with 8, 9 is asked for"):
        decided({"recipe": str(mine), "run": "qa", "width": 9}, there)
    with pytest.raises(BadInput, match=r"recipe: the run was launched with .*mine\.py, pretrain is asked for"):
        decided({"recipe": "pretrain", "run": "qa"}, there)
    mine.write_text(MINE + "# changed\n")
    for values in ({"resume": "qa"}, {"recipe": str(mine), "run": "qa"}, {"resume": "qa", "run": "other"}):
        with pytest.raises(BadInput, match="is not the file that the run was launched with"):
            decided(values, there, launched=from_here)
    assert decided({"recipe": str(mine), "run": "new"}, there).request.step == 0
