"""A recipe of one's own: the same curve on any cluster, and what it may not do is said before it trains."""

import json
import signal
import textwrap

import pytest
import torch
from safetensors.torch import load_file

from tests.train import cluster
from train.__main__ import main
from train.data.own_rows import as_columns, open_rows, split_by_content
from train.engine.batches import rows_of_step
from train.errors import BadInput
from train.plan.config import load_config
from train.recipes import own_rows
from train.recipes.own_file import load

CLOSE = 1e-6
TABLE = cluster.ROOT / "examples/table.py"
CSV = cluster.ROOT / "examples/energy.csv"
STEPS = 24
SETTINGS = {"recipe": TABLE, "max_steps": STEPS, "rows_per_step": 8, "save_every": 6, "eval_every": 12, "width": 16}
SIMPLE = """
import torch
from torch import nn

settings = {"width": 4}

def rows(settings):
    x = torch.arange(60.0).reshape(20, 3).sin()
    return {"x": x, "y": x.sum(1)}

def model(settings):
    return nn.Sequential(nn.Linear(3, settings["width"]), nn.Tanh(), nn.Linear(settings["width"], 1))

def loss(model, batch):
    return (model(batch["x"]).squeeze(1) - batch["y"]) ** 2
"""


def largest_error(found, truth):
    return max(abs(a - b) / b for a, b in zip(found, truth, strict=True))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    config = load_config({**SETTINGS, "dataset": str(CSV)})
    return own_rows.prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


@pytest.fixture(scope="module")
def settings(rows):
    return {**SETTINGS, "dataset": rows}


@pytest.fixture(scope="module")
def alone(settings, tmp_path_factory):
    return cluster.train(tmp_path_factory.mktemp("alone"), settings)


def written(tmp_path, *changes, text=SIMPLE):
    """A recipe with some of its lines replaced."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, textwrap.dedent(new))
    (tmp_path / "mine.py").write_text(text)
    return tmp_path / "mine.py"


def refusal(tmp_path, *changes):
    config = load_config({"recipe": str(written(tmp_path, *changes))})
    with pytest.raises(BadInput) as refused:
        own_rows.prepare(config, lambda _: None, out=str(tmp_path / "rows"))
    assert not (tmp_path / "rows").exists()
    return str(refused.value)


def test_its_losses_are_those_of_plain_pytorch(alone, rows):
    """The recipe's own functions, AdamW, the schedule: nothing of Motley's loop."""
    recipe, data = load(str(TABLE)), open_rows(rows)
    torch.manual_seed(3407)
    model = recipe.model({"width": 16, "shapes": {"x": [5], "y": []}})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    losses = []
    for event in alone.steps():
        chosen = own_rows.as_tensors(data, stream(len(data))[event["step"] * 8 - 8 : event["step"] * 8], "cpu")
        optimizer.zero_grad()
        loss = recipe.loss(model, chosen).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = event["lr"]
        optimizer.step()
        losses.append(loss.item())
    assert len(losses) == STEPS and largest_error(alone.losses(), losses) < 1e-5
    assert losses[-1] < 0.5 * losses[0], "nothing was learned"


def stream(rows):
    return rows_of_step(0, rows=rows, rows_per_step=8 * STEPS, seed=3407)


@pytest.mark.parametrize("sync", ["flat", "ddp"])
def test_three_unequal_processes_have_the_same_curve(alone, settings, tmp_path, sync):
    run = cluster.train(tmp_path, {**settings, "shares": "5,2,1", "sync": sync, "micro_batch": 2}, 3)
    for rank in range(3):
        assert largest_error(run.losses(rank), alone.losses()) < CLOSE
    made = [(run.node_home(rank) / "results/run/model/model.safetensors").read_bytes() for rank in range(3)]
    assert made[0] == made[1] == made[2]


def test_it_goes_on_where_it_was_killed_with_fewer_nodes_and_with_no_other_file(settings, tmp_path):
    longer = {**settings, "max_steps": 400}
    truth = cluster.train(tmp_path / "truth", longer)
    torn = cluster.Cluster(tmp_path, {**longer, "shares": "5,2,1"}, 3)
    torn.reaches(9)
    for process in torn.processes:
        process.send_signal(signal.SIGKILL)
    torn.wait()
    assert len(torn.steps()) < 400, "it was done before it could be killed"
    other = tmp_path / "table.py"
    other.write_text(TABLE.read_text() + "\n# changed\n")
    changed = cluster.Cluster(tmp_path, {**longer, "recipe": other, "dataset": CSV}, 2)
    assert changed.wait() == [2, 2] and "cannot continue with other settings: recipe_hash was" in changed.said()
    run = cluster.train(tmp_path, {**longer, "shares": "3,1"}, 2)
    assert [e["step"] for e in run.events() if e["event"] == "start"][-1] >= 6
    assert largest_error(run.losses(), truth.losses()) < CLOSE


def test_its_result_is_all_that_its_own_functions_need(alone, rows):
    folder = alone.node_home(0) / "results/run/model"
    recipe = load(str(folder / "recipe.py"))
    model = recipe.model(json.loads((folder / "settings.json").read_text()))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    held_out = open_rows(rows, "eval")
    with torch.no_grad():
        losses = recipe.loss(model, own_rows.as_tensors(held_out, list(range(len(held_out))), "cpu"))
    found = [e for e in alone.events() if e["event"] == "eval"]
    assert float(losses.mean()) == pytest.approx(found[-1]["loss"], rel=1e-5)
    assert "recipe.py" in (folder / "README.md").read_text()
    shown = [e for e in alone.events() if e["event"] == "samples"][-1]["lines"]
    assert shown[0]["given"] == "error" and 0 < float(shown[0]["wrote"]) < 2


def test_what_is_not_trained_is_in_the_result_too(tmp_path):
    frozen = """
    def model(settings):
        made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
        made[0].requires_grad_(False)
        made.register_buffer("scale", torch.tensor([2.0]))
        return made

    def no_model(settings):
    """
    mine = written(tmp_path, ("def model(settings):", frozen))
    assert main(["run", f"--recipe={mine}", "--max-steps=3", f"--home={tmp_path}", "--width=4"]) == 0
    for name in ("model", "best"):
        tensors = load_file(tmp_path / f"results/run/{name}/model.safetensors")
        assert tensors.keys() == {"0.weight", "0.bias", "2.weight", "2.bias", "scale"}


# -- what it may not do ------------------------------------------------------------------------------------------------

NORM = ("nn.Tanh()", "nn.{}(4), nn.Tanh()")


@pytest.mark.parametrize(
    ("change", "said"),
    {
        "BatchNorm": (
            ("nn.Tanh()", "nn.BatchNorm1d(4), nn.Tanh()"),
            "1 is BatchNorm: it computes with the rows",
        ),
        "dropout": (("nn.Tanh()", "nn.Dropout(0.5), nn.Tanh()"), "draws random numbers while it trains (1 is Dropout)"),
        "own random numbers": (
            ('model(batch["x"])', 'model(batch["x"] + torch.randn_like(batch["x"]))'),
            "draws random numbers while it trains: every node would draw others",
        ),
        "a mean over the batch": (
            ('batch["y"]) ** 2', 'batch["y"]).square().mean()'),
            "loss gives one number for 5 rows",
        ),
        "not a number a row": ((".squeeze(1) - batch", " - batch"), "loss gives a tensor of shape (5, 5) for 5 rows"),
        "a mean in disguise": (
            (
                '(model(batch["x"]).squeeze(1) - batch["y"]) ** 2',
                '(model(batch["x"]).squeeze(1) - batch["y"]).mean() ** 2 * torch.ones(len(batch["y"]))',
            ),
            "a row's loss depends on the rows beside it",
        ),
        "a counter": (
            ("    return (model", "    calls.append(0)\n    return len(calls) * (model"),
            "the same rows gave other gradients the second time",
        ),
        "a running mean": (
            ("    return (model", "    model.mean += 1\n    return (model"),
            "the buffer mean changes while it trains",
        ),
        "a weight that nothing reaches": (
            (
                'nn.Linear(settings["width"], 1))',
                'nn.Linear(settings["width"], 1)).append(nn.ParameterList([torch.ones(2)]))',
            ),
            "no loss reaches 3.0",
        ),
        "no weights in the loss": (
            ('model(batch["x"])', 'model(batch["x"]).detach()'),
            "does not depend on the model's",
        ),
        "not finite": (('batch["y"]) ** 2', 'batch["y"] * 0) ** 2 / 0'), "loss gives"),
        "an error": (('batch["y"])', 'batch["z"])'), "loss failed: KeyError: 'z'"),
        "no model": (("return nn.Sequential", "return 3, nn.Sequential"), "model gives tuple, not a torch.nn.Module"),
    }.values(),
    ids=lambda value: value[1][:30] if isinstance(value, tuple) else "",
)
def test_what_a_cluster_cannot_share_is_refused_with_its_cause(tmp_path, change, said):
    more = {
        "model.mean": ("    return nn.Sequential(", "    return Own("),
        "calls": ("settings = {", "calls = []\nsettings = {"),
    }
    own = """
    class Own(nn.Sequential):
        def __init__(self, *layers):
            super().__init__(*layers)
            self.register_buffer("mean", torch.zeros(1))

    def model(settings):
    """
    changes = [change, *(more[name] for name in more if name in change[1])]
    if "model.mean" in change[1]:
        changes.append(("def model(settings):", own))
    if "ParameterList" in change[1]:
        changes.append(('model(batch["x"])', 'model[:3](batch["x"])'))
    found = refusal(tmp_path, *changes)
    assert (said in found and f"file: {tmp_path}/mine.py" in found) or "fix" in found or said in found


def test_groupnorm_passes(tmp_path):
    config = load_config({"recipe": str(written(tmp_path, ("nn.Tanh()", "nn.GroupNorm(2, 4), nn.Tanh()")))})
    assert len(open_rows(own_rows.prepare(config, lambda _: None, out=str(tmp_path / "rows")))) >= 18


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([1, 2], "gives list, not names with their numbers"),
        ({"x": [[1], [1, 2]]}, "pad the shorter ones"),
        ({"x": ["a", "b"]}, "turn words into numbers"),
        ({"x": [1, 2], "y": [1]}, "not the same number of rows: x has 2, y has 1"),
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
    found = as_columns({"a": [1.5, 2.0], "b": [1, 2], "c": torch.zeros(2, dtype=torch.bfloat16).float()}, "rows")
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
