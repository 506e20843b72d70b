"""What a recipe of one's own may not do is said before it trains, with its cause."""

import pytest
import torch

from tests.train.own_recipes import SIMPLE, written
from train.errors import BadInput
from train.plan.settings.read_settings import load_config
from train.recipes.own import make_rows as own_rows
from train.recipes.own.rows import as_columns, open_rows, split_by_content


def prepared(tmp_path, recipe):
    return own_rows.prepare(load_config({"recipe": str(recipe)}), lambda _: None, out=str(tmp_path / "rows"))


def refusal(tmp_path, *changes, text=SIMPLE):
    with pytest.raises(BadInput) as refused:
        prepared(tmp_path, written(tmp_path, *changes, text=text))
    assert not (tmp_path / "rows").exists()
    return str(refused.value)


OF_LOSS, OF_MODEL = "    return (model", 'nn.Linear(settings["width"], 1))'
ERROR = '(model(batch["x"]).squeeze(1) - batch["y"]) ** 2'
BUFFER = OF_MODEL.replace("1))", "1)).append(Mean())")
MEAN = """class Mean(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(1))

    def forward(self, x):
        self.mean += {}
        return x

def model(settings):"""
ALIKE = '(model(batch["x"]).squeeze(1) - batch["y"]).mean() ** 2 * torch.ones(len(batch["y"]))'
REFUSED = {
    "BatchNorm": ("1 is BatchNorm: it computes with the rows", ("nn.Tanh()", "nn.BatchNorm1d(4), nn.Tanh()")),
    "dropout": ("random numbers while it trains (1 is Dropout)", ("nn.Tanh()", "nn.Dropout(0.5), nn.Tanh()")),
    "own random numbers": (
        "draws random numbers while it trains: every node would draw others",
        ('model(batch["x"])', 'model(batch["x"] + torch.randn_like(batch["x"]))'),
    ),
    "one of three random numbers": (
        "draws random numbers while it trains: every node would draw others",
        ("settings = {", "import random\nsettings = {"),
        ('model(batch["x"])', 'model(batch["x"] * random.randrange(3))'),
    ),
    "a mean as a metric": (
        "metrics: error gives one number for 5 rows",
        ("def loss(", f"def metrics(model, batch):\n    return {{'error': ({ERROR}).mean()}}\n\ndef loss("),
    ),
    "a mean over the batch": ("loss gives one number for 5 rows", (ERROR, f"({ERROR}).mean()")),
    "not a number a row": ("loss gives a tensor of shape (5, 5) for 5 rows", (".squeeze(1)", "")),
    "a mean in disguise": ("a row's loss depends on the rows beside it", (ERROR, ALIKE)),
    "a counter": (
        "the same rows gave other gradients the second time",
        ("settings = {", "calls = []\nsettings = {"),
        (OF_LOSS, "    calls.append(0)\n    return len(calls) * (model"),
    ),
    "a running mean": (
        "the buffer 3.mean changes while it trains",
        ("def model(settings):", MEAN.format("x.mean().detach()")),
        (OF_MODEL, BUFFER),
    ),
    "a weight that nothing reaches": (
        "no loss reaches 3.0",
        (OF_MODEL, OF_MODEL.replace("1))", "1)).append(nn.ParameterList([torch.ones(2)]))")),
        ('model(batch["x"])', 'model[:3](batch["x"])'),
    ),
    "no weights in the loss": ("does not depend on the model's", ('model(batch["x"])', 'model(batch["x"]).detach()')),
    "not finite": ("loss gives inf on the first rows", (ERROR, f"{ERROR} / 0")),
    "an error": ("loss failed: KeyError: 'z'", ('batch["y"])', 'batch["z"])')),
    "no model": ("model gives tuple, not a torch.nn.Module", ("return nn.Sequential", "return 3, nn.Sequential")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_cluster_cannot_share_is_refused_with_its_cause(tmp_path, case):
    said, *changes = REFUSED[case]
    found = refusal(tmp_path, *changes)
    assert said in found and len(found.splitlines()) <= 3
    assert f"file: {tmp_path}/mine.py" in found


def test_a_recipe_that_reads_a_file_says_that_none_is_given(tmp_path):
    said = refusal(tmp_path, ("def rows(settings):", "def rows(settings):\n    open(settings['dataset'])"))
    mine = tmp_path / "mine.py"
    line = mine.read_text().splitlines().index("    open(settings['dataset'])") + 1
    assert said.endswith(f"\nfile: {mine}, line {line}\nfix: --dataset with the file or folder that it reads")


PASS = {
    "a buffer that stays as it is": [("def model(settings):", MEAN.format("0")), (OF_MODEL, BUFFER)],
    "GroupNorm": [("nn.Tanh()", "nn.GroupNorm(2, 4), nn.Tanh()")],
}


@pytest.mark.parametrize("case", PASS)
def test_what_it_can_share_passes(tmp_path, case):
    assert len(open_rows(prepared(tmp_path, written(tmp_path, *PASS[case])))) >= 18


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([1, 2], "gives list, not names with their numbers"),
        ({"x": [[1], [1, 2]]}, "pad the shorter ones"),
        ({"x": torch.zeros(2, dtype=torch.bfloat16)}, "such as values.float().cpu()"),
        ({"x": ["a", "b"]}, "turn words into numbers"),
        ({"x": [1, 2], "y": [1]}, "not the same number of rows: x has 2, y has 1"),
        ({"x": []}, "x has no rows"),
        ({"x": 3}, "x is one number, not one a row"),
        ({"x": [1.0, float("nan")]}, "x has no finite number in row 1"),
        ({"two words": [1]}, "cannot name a column"),
    ],
)
def test_rows_that_are_none_are_refused(rows, said):
    with pytest.raises(BadInput) as refused:
        as_columns(rows, "rows")
    assert said in str(refused.value)


def test_python_numbers_become_what_a_model_computes_with():
    found = as_columns({"a": [1.5, 2.0], "b": [1, 2], "c": torch.zeros(2, dtype=torch.float64)}, "rows")
    assert {name: str(column.dtype) for name, column in found.items()} == {"a": "float32", "b": "int64", "c": "float32"}


def test_a_row_stays_on_its_side_when_others_go():
    x = torch.arange(400).reshape(200, 2)
    (all_held,), (fewer_held,) = (
        split_by_content(as_columns({"x": part}, "rows"), 0.2)[1].values() for part in (x, x[50:])
    )
    assert 20 < len(all_held) < 60
    assert fewer_held.tolist() == [row for row in all_held.tolist() if row[0] >= 100]
    (one,) = split_by_content(as_columns({"x": x[:4]}, "rows"), 0.0001)[1].values()
    assert len(one) == 1


def test_the_recipe_may_hold_rows_out_itself(tmp_path):
    both = 'return {"x": x[:15], "y": x[:15].sum(1)}, {"x": x[15:], "y": x[15:].sum(1)}'
    whole, other = 'return {"x": x, "y": x.sum(1)}', both.replace('x[15:], "y"', 'x[15:, :2], "y"')
    assert "has other names, shapes or types" in refusal(tmp_path, (whole, other))
    folder = prepared(tmp_path, written(tmp_path, (whole, both)))
    assert (len(open_rows(folder)), len(open_rows(folder, "eval"))) == (15, 5)
