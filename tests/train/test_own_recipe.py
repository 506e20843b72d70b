"""A recipe of one's own: the same curve on any cluster, and what it may not do is said before it trains."""

import json
import signal
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file

import train
from tests.train import cluster
from tests.train.agents import Agents
from train.__main__ import main
from train.data.own_rows import as_columns, open_rows, split_by_content
from train.engine.batches import rows_of_step
from train.errors import BadInput
from train.plan.config import load_config
from train.recipes import own_rows
from train.recipes.own_file import load
from train.runlog.tail import read

CLOSE = 1e-6
TABLE = cluster.ROOT / "examples/table.py"
CSV = cluster.ROOT / "examples/energy.csv"
STEPS = 48
SETTINGS = {"recipe": TABLE, "max_steps": STEPS, "rows_per_step": 8, "save_every": 6, "eval_every": 24, "width": 16}
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
        text = text.replace(old, new)
    (tmp_path / "mine.py").write_text(text)
    return tmp_path / "mine.py"


def refusal(tmp_path, *changes, text=SIMPLE):
    config = load_config({"recipe": str(written(tmp_path, *changes, text=text))})
    with pytest.raises(BadInput) as refused:
        own_rows.prepare(config, lambda _: None, out=str(tmp_path / "refused"))
    assert not (tmp_path / "refused").exists()
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
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8]), "nothing was learned"


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
    longer = {**settings, "max_steps": 400, "learning_rate": 0.001, "eval_every": 0}
    truth = cluster.train(tmp_path / "truth", longer)
    torn = cluster.Cluster(tmp_path, {**longer, "shares": "5,2,1"}, 3)
    torn.reaches(9)
    for process in torn.processes:
        process.send_signal(signal.SIGKILL)
    torn.wait()
    assert len(torn.steps()) < 400, "it was done before it could be killed"
    other = tmp_path / "table.py"
    other.write_text(TABLE.read_text() + "\n# changed\n")
    changed = cluster.Cluster(tmp_path, {**longer, "recipe": other, "dataset": CSV})
    assert changed.wait() == [2] and "cannot continue with other settings: recipe_hash was" in changed.said()
    run = cluster.train(tmp_path, {**longer, "shares": "3,1"}, 2)
    assert [e["step"] for e in run.events() if e["event"] == "start"][-1] >= 6
    assert largest_error(run.losses(), truth.losses()) < CLOSE


def test_the_curve_goes_through_the_loss_of_a_node(settings, tmp_path):
    longer = {**settings, "max_steps": 300, "learning_rate": 0.001, "eval_every": 0, "save_every": 50}
    truth = cluster.train(tmp_path / "alone", longer)
    agents = Agents(tmp_path, {**longer, "speeds": "node-0=5,node-1=2,node-2=1", "sync": "flat"})
    agents.start()
    agents.wait(lambda: agents.last_step("node-0")["step"] >= 10, 90, "they do not train")
    agents.kill("node-2")
    assert agents.ended() == [0, 0]
    steps = agents.steps("node-0")
    assert len(steps[0]["nodes"]) == 3 and len(steps[-1]["nodes"]) == 2
    assert largest_error([event["loss"] for event in steps], truth.losses()) < CLOSE


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
    layers = """    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    made[0].requires_grad_(False)
    made.register_buffer("scale", torch.tensor([2.0]))
    return made
    return nn.Sequential("""
    mine = written(tmp_path, ("    return nn.Sequential(", layers))
    assert main(["run", f"--recipe={mine}", "--max-steps=3", f"--home={tmp_path}", "--width=4"]) == 0
    for name in ("model", "best"):
        tensors = load_file(tmp_path / f"results/run/{name}/model.safetensors")
        assert tensors.keys() == {"0.weight", "0.bias", "2.weight", "2.bias", "scale"}


# -- what it may not do ------------------------------------------------------------------------------------------------

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


def test_a_buffer_that_stays_as_it_is_passes(tmp_path):
    mine = written(tmp_path, ("def model(settings):", MEAN.format("0")), (OF_MODEL, BUFFER))
    own_rows.prepare(load_config({"recipe": str(mine)}), lambda _: None, out=str(tmp_path / "rows"))


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


def test_the_recipe_may_hold_rows_out_itself(tmp_path):
    both = 'return {"x": x[:15], "y": x[:15].sum(1)}, {"x": x[15:], "y": x[15:].sum(1)}'
    mine = written(tmp_path, ('return {"x": x, "y": x.sum(1)}', both))
    folder = own_rows.prepare(load_config({"recipe": str(mine)}), lambda _: None, out=str(tmp_path / "rows"))
    assert (len(open_rows(folder)), len(open_rows(folder, "eval"))) == (15, 5)
    other = both.replace('x[15:], "y"', 'x[15:, :2], "y"')
    assert "has other names, shapes or types" in refusal(tmp_path, (both, other), text=mine.read_text())


# -- from Python -------------------------------------------------------------------------------------------------------


def test_fit_is_the_same_run_as_the_command(alone, settings, tmp_path):
    made = train.fit(TABLE, {**settings, "home": tmp_path, "run": "run"})
    losses = [e["loss"] for e in read(tmp_path / "logs/runs/run/events.jsonl") if e["event"] == "step"]
    assert losses == alone.losses() and made.loss == losses[-1] and made.steps == STEPS
    truth = load_file(alone.node_home(0) / "results/run/model/model.safetensors")
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(tensor, truth[name])
    assert made.folder == tmp_path / "results/run/model" and not made.model.training and made.held_out
    again = train.fit(str(TABLE), {**settings, "home": tmp_path, "run": "run"})
    assert again.steps == STEPS and torch.equal(again.model[0].weight, made.model[0].weight)


def test_fit_takes_an_object_with_the_same_functions(tmp_path):
    class Mine:
        settings: ClassVar = {"width": 3}

        def rows(self, settings):
            return {"x": [[float(i % 5)] for i in range(30)], "y": [float(i % 5) for i in range(30)]}

        def model(self, settings):
            return torch.nn.Linear(1, 1)

        def loss(self, model, batch):
            return (model(batch["x"]).squeeze(1) - batch["y"]) ** 2

    made = train.fit(Mine(), {"max_steps": 3, "home": tmp_path, "width": 4})
    assert made.steps == 3 and json.loads((made.folder / "settings.json").read_text())["width"] == 4
    with pytest.raises(BadInput, match="unknown setting 'widht', did you mean 'width'"):
        train.fit(Mine(), {"widht": 4})
    with pytest.raises(BadInput, match="lies in no file"):
        train.fit(eval("type('Own', (), {})()", {"__name__": "nowhere"}))


def test_signals_mean_what_they_meant_before(tmp_path, settings):
    before = signal.getsignal(signal.SIGTERM)
    train.fit(TABLE, {**settings, "home": tmp_path, "max_steps": 1})
    assert signal.getsignal(signal.SIGTERM) is before


def test_fit_in_three_unequal_processes_has_the_curve_of_one(alone, settings, tmp_path):
    run = cluster.train(tmp_path, {**settings, "shares": "5,2,1"}, 3, program=["-m", "tests.train.fits"])
    for rank in range(3):
        assert largest_error(run.losses(rank), alone.losses()) < CLOSE
        assert f"steps {STEPS}" in run.said(rank)


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_eval_measures_it_and_the_others_say_what_to_do(alone, rows, capsys):
    home = alone.node_home(0)
    launched = load_config({name: str(value) for name, value in SETTINGS.items()}).scoped("math", "agree", "node")
    facts = {"all": launched | {"recipe": "/gone/table.py"}, "model": {"folder_name": ""}, "rows": rows.name}
    (home / "logs/runs/run/launch.json").write_text(json.dumps(facts))
    (home / "data/processed").mkdir(parents=True)
    (home / "data/processed" / rows.name).symlink_to(rows)
    where = [f"--home={home}", "--run=run"]
    assert main(["eval", "--json", *where]) == 0
    found = json.loads(capsys.readouterr().out)["model"]
    assert found["loss"] == pytest.approx([e for e in alone.events() if e["event"] == "eval"][-1]["loss"], rel=1e-5)
    assert 0 < found["error"] < 2
    for words, said in ((["ask"], "no words to answer with"), (["export", "gguf"], "take that folder as it is")):
        assert main([*words, *where]) == 2
        assert said in capsys.readouterr().err


def test_a_plan_without_machines_says_what_it_does_not_know(capsys):
    assert main(["plan", f"--recipe={TABLE}", "--width=8"]) == 0
    assert "shows only when the model is built" in capsys.readouterr().out
    assert main(["plan", f"--recipe={TABLE}", "--speeds=a=30,b=10"]) == 0
    assert "24" in capsys.readouterr().out
