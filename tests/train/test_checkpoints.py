"""Checkpoints: whole or not there, recognised when damaged, read by PEFT, and pruned to the last ones and the best."""

import functools
import json
import shutil
from pathlib import Path

import peft
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM

from tests.train import cluster, pictures, reference, texts
from tests.train.bases import FORMS, save_in_4bit
from train import recipes
from train.engine import checkpoint
from train.engine.make_optimizer import make_optimizer
from train.models.backends import ModelSpec, get
from train.models.model_files import model_folder
from train.models.optimizer_step import Trained
from train.models.weights import trained_weights
from train.plan.settings.read_settings import load_config
from train.recipes.images import models as picture_models
from train.recipes.pretrain import model as new

OPTIONS = {
    **{"model": "tiny", "max_steps": 9, "rows_per_step": 4, "lora_r": 4},
    **{"save_every": 2, "eval_every": 3, "keep": 2},
}


@pytest.fixture(scope="module")
def finished_in(tmp_path_factory):
    def run(form):
        home = tmp_path_factory.mktemp("run")
        data = cluster.make_rows(home / "data", 20, 4)
        return cluster.train(home, {**OPTIONS, "dataset": data, "load_in": form}, 2)

    return functools.cache(run)


@pytest.fixture
def finished(finished_in, form) -> cluster.Cluster:
    return finished_in(form)


@pytest.fixture
def copy(finished, form, tmp_path) -> tuple[Path, dict]:
    """The first node's home after the run, free to be damaged, and the options that continue it."""
    shutil.copytree(finished.node_home(0), tmp_path / "node-0")
    return tmp_path, {**OPTIONS, "dataset": finished.home / "data", "load_in": form}


def root(home: Path) -> Path:
    return home / "node-0/models/checkpoints/run"


@pytest.mark.parametrize("form", FORMS)
def test_every_node_has_the_same_checkpoints(finished):
    best = [event["step"] for event in finished.events(kind="eval") if event["best"]][-1]
    saved = [event["step"] for event in finished.events(kind="checkpoint")]
    assert saved == [2, 3, 4, 6, 8, 9], "every second step, and each best of the evaluations at 3, 6 and 9"
    for rank in range(2):
        steps = checkpoint.steps(finished.checkpoints(rank))
        assert steps[-2:] == [8, 9] and set(steps) <= {best, 8, 9}
    newest = [json.loads((finished.checkpoints(rank) / "step-9/manifest.json").read_text()) for rank in range(2)]
    assert newest[0] == newest[1]
    assert not [path for path in finished.checkpoints().iterdir() if path.name.startswith(".")]


def test_no_file_of_a_checkpoint_is_a_pickle(finished):
    names = {path.name for path in (finished.checkpoints() / "step-9").iterdir()}
    assert names == {
        "adapter_model.safetensors", "adapter_config.json", "optimizer.safetensors", "state.json", "manifest.json"
    }  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_peft_loads_checkpoint_and_result(form, finished):
    def base():
        model = AutoModelForCausalLM.from_pretrained(model_folder("tiny"))
        if form == "4bit":
            reference.round_to_nf4(model)
        return model

    ids = torch.arange(3, 40)[None]
    adapters = (finished.checkpoints() / "step-9", finished.result(1))
    outputs = [peft.PeftModel.from_pretrained(base(), folder)(ids).logits for folder in adapters]
    ours = get("hf").build(ModelSpec(folder=model_folder("tiny"), adapter=finished.result(), load_in=form))
    untrained = base()(ids).logits
    assert torch.equal(outputs[0], outputs[1])
    torch.testing.assert_close(ours(ids).logits, outputs[0], rtol=0, atol=0 if form == "16bit" else 2e-6)
    assert (outputs[0] - untrained).abs().max() > 1e-4
    assert (finished.result(name="best") / "adapter_model.safetensors").exists()


def test_the_result_names_its_base_for_others(finished):
    for name in ("adapter", "best"):
        config = json.loads((finished.result(1, name) / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == "tiny (made by Motley: it cannot be loaded elsewhere)"


def damage_weights(folder: Path) -> None:
    data = bytearray((folder / "adapter_model.safetensors").read_bytes())
    data[-1] ^= 1
    (folder / "adapter_model.safetensors").write_bytes(data)


def cut_short(folder: Path) -> None:
    data = (folder / "optimizer.safetensors").read_bytes()
    (folder / "optimizer.safetensors").write_bytes(data[: len(data) // 2])


@pytest.mark.parametrize("harm", [damage_weights, cut_short, lambda folder: (folder / "manifest.json").unlink()])
def test_a_damaged_checkpoint_is_recognised(harm, copy):
    home, _ = copy
    harm(root(home) / "step-9")
    saved, problems = checkpoint.newest_intact(root(home))
    assert saved.step == 8 and len(problems) == 1 and problems[0].startswith("step-9: ")


@pytest.mark.parametrize("form", FORMS)
def test_a_run_continues_from_the_one_before_a_damaged_checkpoint(copy, finished):
    home, options = copy
    damage_weights(root(home) / "step-9")
    run = cluster.train(home, options, 1)
    assert "passed over a damaged checkpoint, step-9: adapter_model.safetensors is not what was written" in run.said()
    assert "resumed at step 8" in run.said()
    assert run.losses() == pytest.approx(finished.losses(), rel=1e-5)


SETTINGS = "cannot continue with other settings: "


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"learning_rate": 0.5}, f"{SETTINGS}learning_rate was 0.0002, is 0.5"),
        ({"load_in": "4bit"}, f"{SETTINGS}load_in was 16bit, is 4bit"),
        ({"run": "second", "resume": "frist"}, "resume: no node has a checkpoint of run 'frist'"),
    ],
    ids=["other settings", "a base held otherwise", "a run that nobody has"],
)
def test_what_cannot_be_continued_is_refused_before_anything_is_done(changed, said, copy):
    home, options = copy
    run = cluster.Cluster(home, options | changed)
    assert run.wait() == [2]
    assert said in run.said() and ("resume: never" in run.said()) == (SETTINGS in said)


def test_data_that_has_changed_is_called_that(copy, tmp_path):
    home, options = copy
    run = cluster.Cluster(home, {**options, "dataset": cluster.make_rows(tmp_path / "others", 9, 2)}, 1)
    assert run.wait() == [2]
    said = "cannot continue: its data has changed since it began; put the old data back, or begin a new run"
    assert said in run.said() and "other settings" not in run.said()


def test_a_quantised_base_with_one_other_weight_is_another_base(tmp_path):
    """Its bytes on disk are what is compared, however they are packed."""
    base = save_in_4bit(tmp_path / "base")
    data = cluster.make_rows(tmp_path / "data", 8, 2)
    options = {**OPTIONS, "dataset": data, "model": base, "max_steps": 2}
    cluster.train(tmp_path, options)
    weights = load_file(base / "model.safetensors")
    weights["model.layers.0.mlp.up_proj.weight"][0] ^= 1
    save_file(weights, base / "model.safetensors", metadata={"format": "pt"})
    run = cluster.Cluster(tmp_path, options, 1)
    assert run.wait() == [2]
    assert "cannot continue with other settings: base weights was" in run.said()


def test_never_resume_starts_again_and_keeps_the_old_checkpoints_aside(copy):
    home, options = copy
    run = cluster.train(home, {**options, "resume": "never", "learning_rate": 0.001, "max_steps": 2}, 1)
    assert [event["step"] for event in run.steps()] == [1, 2]
    aside = [path for path in root(home).parent.iterdir() if path.name.startswith("run.before-")]
    assert checkpoint.steps(aside[0])[-1] == 9


@pytest.mark.parametrize("changed", [{}, {"run": "second", "resume": "run"}], ids=["itself", "another"])
def test_a_finished_run_is_continued_and_not_trained_again(changed, copy, finished):
    """Nor is it forgotten what was measured of it, as where its power was cut before the result was written."""
    home, options = copy
    run = cluster.train(home, options | changed)
    assert "resumed at step 9" in run.said()
    assert len(run.events(kind="step")) == 9
    (result,) = home.glob(f"node-0/results/{changed.get('run', 'run')}/adapter")
    assert measured(result) == measured(finished.result()) and " → " in measured(result)


def measured(result: Path) -> str:
    return next(line for line in (result / "README.md").read_text().splitlines() if "held-out loss" in line)


def begun(settings) -> tuple[torch.nn.Module, Trained]:
    """A run of a recipe that trains all weights, before its first step."""
    config = load_config(settings)
    pictured = config.recipe == "images"
    model = picture_models.empty(config.facts(3)) if pictured else new.empty(config.facts(400), 0)
    named = trained_weights(model)
    for p in named.values():
        torch.nn.init.constant_(p, 0.1)
    optimizer = make_optimizer(config, recipes.of(config).optimized(config, named))
    return model, Trained(named, optimizer, grad_clip=1.0)


def trains(trained: Trained, steps: range) -> None:
    for number in steps:
        random = torch.Generator().manual_seed(number)
        for p in trained.parameters:
            p.grad = torch.randn(p.shape, generator=random)
        trained.set_rate(0.01 * (number + 1))
        if hasattr(trained.optimizer, "exchange"):
            trained.optimizer.exchange(1.0, torch.float32)
        trained.step(trained.gradient_norm())


@pytest.mark.parametrize(
    "settings",
    [texts.SETTINGS, {**texts.SETTINGS, "optimizer": "muon"}, pictures.SETTINGS],
    ids=["adamw", "muon", "sgd"],
)
def test_of_all_weights_and_any_optimizer_it_has_what_the_next_step_needs(settings, tmp_path):
    """Bit for bit; whole runs of these recipes that are killed: test_muon.py, and in test-long."""
    _, never = begun(settings)
    trains(never, range(6))
    model, first = begun(settings)
    trains(first, range(3))
    checkpoint.write(tmp_path, 3, model, first, {})
    model, again = begun(settings)
    saved, _ = checkpoint.newest_intact(tmp_path)
    checkpoint.load(saved, model, again.optimizer)
    trains(again, range(3, 6))
    assert all(torch.equal(weight, never.named[name]) for name, weight in again.named.items())


def test_pruning_keeps_the_last_and_the_best(tmp_path):
    for step in range(1, 8):
        (tmp_path / f"step-{step}").mkdir()
    checkpoint.prune(tmp_path, 7, 2, 3)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-3", "step-6", "step-7"]


def test_what_was_passed_over_takes_no_good_ones_place(tmp_path):
    """Step 9 is damaged, the run went on from 5 and has just saved 6."""
    for step in (5, 6, 9):
        (tmp_path / f"step-{step}").mkdir()
    checkpoint.prune(tmp_path, 6, 1, None)
    assert checkpoint.steps(tmp_path) == [6, 9]


def test_what_a_killed_process_left_makes_room_for_the_next_one(tmp_path, monkeypatch):
    left = tmp_path / ".step-3.4711"
    left.mkdir()

    def on_a_full_disk(*_):
        assert not left.exists()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoint, "write_weights", on_a_full_disk)
    with pytest.raises(OSError, match="No space"):
        checkpoint.write(tmp_path, 4, None, Trained({}, None), {})
    assert list(tmp_path.iterdir()) == []


def test_a_result_of_which_nothing_can_be_said_is_there_all_the_same(tmp_path):
    data = cluster.make_rows(tmp_path / "data", 20, 0)
    options = {**OPTIONS, "dataset": data, "max_steps": 2}
    done = cluster.train(tmp_path, options, changed="no_card")
    made = ["adapter_config.json", "adapter_model.safetensors", "descent.json"]
    assert sorted(path.name for path in done.result().iterdir()) == made
    (warning,) = done.events(kind="warning")
    assert "the result has no README.md: PermissionError" in warning["message"]


def test_a_stop_while_the_base_is_evaluated_saves_what_is_trained(tmp_path):
    """PEFT marks nothing as trained while it is disabled; the process that leaves saves in a thread of its own."""
    model = get("hf").build(ModelSpec(folder=model_folder("tiny"), lora_r=4))
    trained = Trained(named := trained_weights(model), torch.optim.AdamW(list(named.values())))
    sum(p.square().sum() for p in named.values()).backward()
    trained.step(1.0)
    with model.disable_adapter():
        checkpoint.write(tmp_path, 8, model, trained, {})
    saved, problems = checkpoint.newest_intact(tmp_path)
    assert problems == [] and load_file(saved.folder / "adapter_model.safetensors").keys() == named.keys()
    before = {name: p.detach().clone() for name, p in named.items()}
    with torch.no_grad():
        for p in named.values():
            p.zero_()
    checkpoint.load(saved, model, trained.optimizer)
    assert all(torch.equal(p, before[name]) for name, p in named.items())
    assert all(trained.optimizer.state[p]["step"] == 1 for p in named.values())
