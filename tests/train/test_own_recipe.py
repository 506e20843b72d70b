"""A recipe of one's own: the same curve on any cluster, by the command and from Python, and what comes out of it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from safetensors.torch import load_file

import motley
from tests.support import pace
from tests.train import cluster, reference
from tests.train.own_recipes import written
from train.__main__ import main, parse, prepare_command
from train.engine.shutdown import Leaver
from train.errors import BadInput
from train.models.backends import to_tensors
from train.plan.launch.plan_cards import what_if
from train.plan.settings.read_settings import config_of, load_config
from train.recipes.own import make_rows as own_rows
from train.recipes.own.file import load
from train.recipes.own.rows import open_rows
from train.runlog.tail import read

TABLE = cluster.ROOT / "examples/table.py"
CSV = cluster.ROOT / "examples/energy.csv"
STEPS = 48
SETTINGS = {"recipe": TABLE, "max_steps": STEPS, "rows_per_step": 8, "save_every": 6, "eval_every": 24, "width": 16}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    config = load_config({**SETTINGS, "dataset": str(CSV)})
    return own_rows.prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


@pytest.fixture(scope="module")
def settings(rows):
    return {**SETTINGS, "dataset": rows}


def test_its_losses_are_those_of_plain_pytorch(alone, rows):
    """The recipe's own functions, AdamW, the schedule: nothing of Motley's loop."""
    recipe, data = load(str(TABLE)), open_rows(rows)
    torch.manual_seed(3407)
    model = recipe.model({"width": 16, "shapes": {"x": [5], "y": []}})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    losses, stream = [], reference.order(data, 3407)
    for event in alone.steps():
        chosen = to_tensors(data.batch(stream[event["step"] * 8 - 8 : event["step"] * 8]), "cpu")
        optimizer.zero_grad()
        loss = recipe.loss(model, chosen).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = event["lr"]
        optimizer.step()
        losses.append(loss.item())
    assert len(losses) == STEPS and reference.largest_error(alone.losses(), losses) < 1e-5
    assert sum(losses[-8:]) < 0.5 * sum(losses[:8]), "nothing was learned"


BY_FIT = ["-m", "tests.train.fits"]


@pytest.mark.parametrize(
    ("sync", "program"), [("flat", BY_FIT), pytest.param("ddp", ["-m", "train"], marks=pytest.mark.long)]
)
def test_three_unequal_processes_have_the_same_curve_by_fit_too(alone, settings, tmp_path, sync, program):
    unequal = {**settings, "shares": "5,2,1", "sync": sync, "micro_batch": 2}
    run = cluster.train(tmp_path, unequal, 3, program=program)
    reference.assert_one_model(run, alone)
    assert program != BY_FIT or all(f"steps {STEPS}" in run.said(rank) for rank in range(3))


ONLY_SOME = """
import torch
from torch import nn

def rows(settings):
    x = torch.arange(60.0).reshape(20, 3).sin()
    return {"x": x, "y": x.sum(1), "some": torch.arange(20) % 7 == 1}

def model(settings):
    return nn.ModuleDict({"all": nn.Linear(3, 1), "some": nn.Linear(3, 1)})

def loss(model, batch):
    x, some = batch["x"], batch["some"]
    said = model["all"](x)
    if some.any():
        said = said.index_add(0, some.nonzero()[:, 0], model["some"](x[some]))
    return (said.squeeze(1) - batch["y"]) ** 2
"""


def test_a_layer_that_only_some_rows_go_through_learns_the_same_on_any_cluster(tmp_path):
    """Also in a step without such a row, in which AdamW moves it on by what it has learned."""
    settings = {"recipe": written(tmp_path, text=ONLY_SOME), "max_steps": 12, "rows_per_step": 4, "sync": "flat"}
    settings |= {"learning_rate": 0.05, "weight_decay": 0.5}
    alone = cluster.train(tmp_path / "alone", settings)
    reference.assert_one_model(cluster.train(tmp_path / "two", {**settings, "shares": "2,1"}, 2), alone, within=1e-5)


def test_ddp_does_not_go_on_without_such_a_row(tmp_path):
    settings = {"recipe": written(tmp_path, text=ONLY_SOME), "max_steps": 12, "rows_per_step": 4, "sync": "ddp"}
    run = cluster.Cluster(tmp_path, settings, 2)
    assert run.wait() == [1, 1] and "use sync=flat, where a layer is for some rows alone" in run.said(0) + run.said(1)


def test_it_goes_on_with_no_other_file(alone, settings, tmp_path):
    other = tmp_path / "table.py"
    other.write_text(TABLE.read_text() + "\n# changed\n")
    shutil.copytree(alone.node_home(0), tmp_path / "node-0")
    changed = cluster.Cluster(tmp_path, {**settings, "recipe": other, "dataset": CSV})
    assert changed.wait() == [2] and "cannot continue with other settings: recipe_hash was" in changed.said()


def test_a_file_of_settings_with_its_own_serves_every_command(tmp_path):
    (tmp_path / "training.yaml").write_text(json.dumps({"recipe": str(TABLE), "width": 8}))
    for command, *words in (["run"], ["agent", "--cluster=cluster.yaml"], ["versions"]):
        _, parser = prepare_command(command)
        args = parse(parser, [*words, f"--config={tmp_path}/training.yaml"])
    _, parser = prepare_command("run")
    args = parse(parser, [f"--config={tmp_path}/training.yaml", "--target=area"])
    assert config_of(args).own == {"width": 8, "target": "area", "seed": 3407}


def test_its_result_is_all_that_its_own_functions_need(alone, rows):
    folder = alone.result(name="model")
    recipe = load(str(folder / "recipe.py"))
    model = recipe.model(json.loads((folder / "settings.json").read_text()))
    model.load_state_dict(load_file(folder / "model.safetensors"))
    held_out = open_rows(rows, "eval")
    with torch.no_grad():
        losses = recipe.loss(model, to_tensors(held_out.batch(list(range(len(held_out)))), "cpu"))
    assert float(losses.mean()) == pytest.approx(alone.events(kind="eval")[-1]["loss"], rel=1e-5)
    assert "recipe.py" in (folder / "README.md").read_text()
    shown = alone.events(kind="samples")[-1]["lines"]
    assert shown[0]["given"] == "error" and 0 < float(shown[0]["wrote"]) < 2


def test_what_is_not_trained_is_in_the_result_too(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("train.engine.run.Leaver", lambda: None)  # of a process that trains and ends
    layers = """    made = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    made[0].requires_grad_(False)
    made.register_buffer("scale", torch.tensor([2.0]))
    return made
    return nn.Sequential("""
    mine = written(tmp_path, ("    return nn.Sequential(", layers))
    words = ["--max-steps=3", "--eval-every=1", "--learning-rate=50", "--warmup-steps=6", "--eval-fraction=0.3"]
    assert main(["run", f"--recipe={mine}", f"--home={tmp_path}", "--json", *words]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    best = min(read(Path(told["events"])), key=lambda e: e["loss"] if e["event"] == "eval" else 1e9)
    assert told["model"] == str(tmp_path / "results/run/model")
    assert best["step"] < 3, "the last is the best: the two results are one"
    for name, step in (("model", 3), ("best", best["step"])):
        tensors = load_file(tmp_path / f"results/run/{name}/model.safetensors")
        assert tensors.keys() == {"0.weight", "0.bias", "2.weight", "2.bias", "scale"}
        trained = load_file(tmp_path / f"models/checkpoints/run/step-{step}/model.safetensors")
        assert trained.keys() == {"2.weight", "2.bias"}
        assert all(torch.equal(tensors[name], weights) for name, weights in trained.items())


# -- from Python -------------------------------------------------------------------------------------------------------


def losses_in(log):
    return [event["loss"] for event in read(log) if event["event"] == "step"]


def test_fit_is_the_same_run_as_the_command(alone, settings, tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    made = motley.fit(TABLE, {**settings, "home": tmp_path, "run": "run"})
    assert signal.getsignal(signal.SIGTERM) is before, "signals mean what they meant before"
    losses = losses_in(tmp_path / "logs/runs/run/events.jsonl")
    assert losses == alone.losses() and made.loss == losses[-1] and made.steps == STEPS
    truth = load_file(alone.result(name="model") / "model.safetensors")
    for name, tensor in made.model.state_dict().items():
        assert torch.equal(tensor, truth[name])
    assert made.folder == tmp_path / "results/run/model" and not made.model.training and made.held_out
    again = motley.fit(str(TABLE), {**settings, "home": tmp_path, "run": "run"})
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

    made = motley.fit(Mine(), {"max_steps": 3, "home": tmp_path, "width": 4})
    assert made.steps == 3 and json.loads((made.folder / "settings.json").read_text())["width"] == 4
    with pytest.raises(BadInput, match="unknown setting 'widht', did you mean 'width'"):
        motley.fit(Mine(), {"widht": 4})
    with pytest.raises(BadInput, match="lies in no file"):
        motley.fit(eval("type('Own', (), {})()", {"__name__": "nowhere"}))


def test_sft_is_the_same_run_as_the_command(tmp_path):
    records = [{"prompt": f"Say {n}.", "completion": "blue"} for n in range(60)]
    data = cluster.write_records(tmp_path / "colours.jsonl", records)
    settings = {"max_steps": 3, "rows_per_step": 2, "max_seq_length": 64, "device": "cpu"}
    command = cluster.train(tmp_path / "command", {"model": "tiny", "dataset": data, **settings})
    made = motley.sft(model="tiny", dataset=data, home=tmp_path / "call", **settings)
    assert losses_in(tmp_path / "call/logs/runs/tiny-colours/events.jsonl") == command.losses()
    assert made.folder == tmp_path / "call/results/tiny-colours/adapter" and made.steps == 3
    assert (made.folder / "adapter_model.safetensors").is_file() and hasattr(made.model, "disable_adapter")
    with pytest.raises(BadInput, match="unknown setting 'lerning_rate', did you mean 'learning_rate'"):
        motley.sft(model="tiny", dataset=data, lerning_rate=1)


def test_a_train_py_of_ones_own_is_not_in_its_way(tmp_path):
    (tmp_path / "train.py").write_text("import motley; print(motley.sft.__module__, motley.fit.__module__)")
    (tmp_path / "other.py").write_text("import train")
    env = os.environ | {"PYTHONPATH": str(Path(motley.__file__).parent)}

    def said(*words):
        how = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run([sys.executable, *words], cwd=tmp_path, env=env, check=False, **how).stdout

    assert said("train.py") == "train.engine.from_python train.engine.from_python\n"
    assert said("-c", "import motley, train; print(train.__file__)").endswith("/train/__init__.py\n")
    assert "fix: import motley before it" in said("-c", "import train; import motley")


def test_ctrl_c_saves_and_gives_the_process_back(tmp_path, settings):
    """A notebook keeps its variables, and the same call continues."""
    wanted = {**settings, "home": tmp_path, "run": "run", "max_steps": 600}
    log = tmp_path / "logs/runs/run/events.jsonl"

    def press():
        pace.until(lambda: log.exists() and len(log.read_text().splitlines()) > 20, pace.HANG_S, "no step")
        os.kill(os.getpid(), signal.SIGINT)

    presses = threading.Thread(target=press)
    presses.start()
    with pytest.raises(KeyboardInterrupt):
        motley.fit(TABLE, wanted)
    presses.join()
    stopped = next(event for event in read(log) if event["event"] == "stopped")
    assert 10 < stopped["step"] < 600 and stopped["reason"] == "SIGINT"
    assert motley.fit(TABLE, wanted).steps == 600
    assert [event["step"] for event in read(log) if event["event"] == "start"] == [0, stopped["step"]]


def test_ctrl_c_that_the_main_thread_misses_once_is_said_again(monkeypatch):
    """It came just before it began to wait for the lock: nothing wakes it."""
    tell, missed = signal.pthread_kill, []

    def loses_the_first(thread, number):
        missed.append(number) if not missed else tell(thread, number)

    monkeypatch.setattr(signal, "pthread_kill", loses_the_first)
    leaver = Leaver(interrupts=True)
    try:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            threading.Event().wait(5)
    finally:
        leaver.release()
    assert missed == [signal.SIGINT]
    threading.Event().wait(0.2)  # and not a third time


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_eval_measures_it_and_the_others_say_what_to_do(alone, rows, capsys):
    asked = load_config({name: str(value) for name, value in SETTINGS.items()}).scoped("math", "agree", "node")
    home = alone.launched(asked | {"recipe": "/gone/table.py"}, rows.name)
    (home / "data/processed").mkdir(parents=True)
    (home / "data/processed" / rows.name).symlink_to(rows)
    where = [f"--home={home}", "--run=run"]
    code, told = cluster.answer(capsys, "eval", *where)
    found = told["model"]
    assert code == 0 and found["loss"] == pytest.approx(alone.events(kind="eval")[-1]["loss"], rel=1e-5)
    assert 0 < found["error"] < 2
    for words, said in ((["ask"], "no words to answer with"), (["export", "gguf"], "take that folder as it is")):
        assert main([*words, *where]) == 2
        assert said in capsys.readouterr().err


def test_a_plan_without_machines_says_what_it_does_not_know():
    values = {"recipe": str(TABLE), "width": 8}
    assert "shows only when the model is built" in what_if("24,8", values).lines[0]
    assert any("24" in line for line in what_if("a=24,b=8", values | {"speeds": "a=30,b=10"}).lines)
