"""A run that begins with a trained adapter: it continues where that one stood, on any number of machines, and refuses
what does not belong to it."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.train import cluster
from train import recipes
from train.errors import BadInput
from train.models.model_files import model_folder
from train.models.weights import trained_weights
from train.plan.placement.decisions import Decisions
from train.plan.settings.read_settings import load_config
from train.recipes.sft import recipe as sft

ROWS = 12
FIRST = {
    "model": "tiny", "max_steps": 4, "rows_per_step": ROWS, "lora_r": 4, "lora_alpha": 12, "schedule": "constant",
    "lora_targets": "q_proj,down_proj", "learning_rate": 2e-3, "warmup_steps": 0, "wire": "fp32",
}  # fmt: skip
"""Every step sees all rows, so that a first step can be held against a last one."""
SECOND = {name: FIRST[name] for name in ("rows_per_step", "schedule", "learning_rate", "warmup_steps", "wire")}


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    """A finished run of four steps, and the loss that a fifth would have."""
    folder = tmp_path_factory.mktemp("first")
    data = cluster.make_rows(folder / "data", ROWS)
    longer = cluster.train(folder / "longer", FIRST | {"dataset": data, "max_steps": 5})
    run = cluster.train(folder / "run", FIRST | {"dataset": data, "run": "first"})
    return run, data, longer.losses()[4]


def second(first, home, size=1, **more):
    run, data, _ = first
    adapter = run.node_home(0) / "results/first/adapter"
    return cluster.train(home, SECOND | {"dataset": data, "adapter": adapter, "max_steps": 3, **more}, size)


def test_its_first_loss_is_the_one_after_the_last_and_three_machines_have_that_of_one(first, tmp_path):
    alone = second(first, tmp_path / "alone")
    assert alone.losses()[0] == pytest.approx(first[2], rel=1e-6)
    three = second(first, tmp_path / "three", 3, shares="5,2,1")
    assert three.losses() == pytest.approx(alone.losses(), rel=5e-6)
    identity = three.events(2, "start")[0]["identity"]
    assert identity["adapter_hash"] and identity["lora_targets"] == "q_proj,down_proj"


def test_its_card_tells_the_line_of_descent(first, tmp_path):
    made = second(first, tmp_path, run="second").node_home(0) / "results/second/adapter"
    runs = json.loads((made / "descent.json").read_text())["runs"]
    assert [(run["run"], run["recipe"], run["steps"]) for run in runs] == [("first", "sft", 4), ("second", "sft", 3)]
    assert (
        "| descent | `tiny` → sft `first` (data, 4 steps) → sft `second` (data, 3 steps) |"
        in (made / "README.md").read_text()
    )
    told = json.loads((made / "adapter_config.json").read_text())
    assert (told["r"], told["lora_alpha"], told["target_modules"]) == (4, 12, ["down_proj", "q_proj"])


def built(adapter, **more):
    """A model as a run builds it, and its trained weights."""
    layers = more.pop("layers", None)
    config = load_config({"model": "tiny", "adapter": str(adapter), **more})
    decisions = Decisions(backend="hf", precision="fp32", load_in="16bit", gradient_checkpointing="false", whys={})
    how = {} if layers is None else {"layers": layers}
    build = sft.build if how else recipes.of(config).build
    return trained_weights(build(config, decisions, model_folder("tiny"), "cpu", 48, **how).model)


@pytest.mark.parametrize(
    "how",
    [{}, {"weights": "stream"}, {"layers": (0, 1)}, {"recipe": "grpo", "rewards": "exact"}, {"recipe": "preference"}],
    ids=["held", "streamed", "cut", "grpo", "preference"],
)
def test_however_the_base_is_held_it_begins_with_exactly_that_adapter(first, how):
    adapter = first[0].node_home(0) / "results/first/adapter"
    wanted, found = load_file(adapter / "adapter_model.safetensors"), built(adapter, **how)
    assert found.keys() == wanted.keys() and len(wanted) > 4
    assert all(torch.equal(weight, found[name]) for name, weight in wanted.items())
    assert any(weight.any() for name, weight in wanted.items() if "lora_B" in name), "a new one has zeros there"


def changed(first, folder, tensors=None, **descent):
    """A copy of the adapter that is not what it was."""
    copy = shutil.copytree(first[0].node_home(0) / "results/first/adapter", folder / "changed")
    told = json.loads((copy / "descent.json").read_text())
    (copy / "descent.json").write_text(json.dumps(told | descent))
    if tensors:
        file = copy / "adapter_model.safetensors"
        save_file({tensors(name): weight for name, weight in load_file(file).items()}, file)
    return copy


def test_another_base_ends_the_run_before_its_first_step(first, tmp_path):
    adapter = changed(first, tmp_path, sha256="0" * 64)
    run = cluster.Cluster(tmp_path, SECOND | {"dataset": first[1], "adapter": adapter, "max_steps": 3})
    assert run.wait() == [2] and not run.events()
    said = run.said().strip().splitlines()
    assert "adapter: first was trained on tiny, and tiny is not that model with the same weights" in said[-3], said


def test_weights_that_the_model_has_not_are_refused(first, tmp_path):
    with pytest.raises(BadInput, match="holds other weights than this model trains"):
        built(changed(first, tmp_path, lambda name: name.replace("layers.0", "layers.7")))


RELATIVES = {
    "DoRA": {"dora": True},
    "PiSSA": {"lora_init": "pissa"},
    "OLoRA, by the root of the rank": {"lora_init": "olora", "rslora": True},
}


@pytest.mark.parametrize("kind", RELATIVES)
def test_loras_relatives_go_on_where_they_stood(kind, tmp_path):
    """DoRA as DoRA; what began as parts of the base as the plain LoRA that it was saved as."""
    data = cluster.make_rows(tmp_path / "data", ROWS)
    options = FIRST | RELATIVES[kind] | {"dataset": data}
    longer = cluster.train(tmp_path / "longer", options | {"max_steps": 5})
    before = cluster.train(tmp_path / "before", options | {"run": "first"})
    wanted = load_file(before.node_home(0) / "results/first/adapter/adapter_model.safetensors")
    assert any("magnitude" in name for name in wanted) == (kind == "DoRA")
    alone = second((before, data, None), tmp_path / "alone")
    assert alone.losses()[0] == pytest.approx(longer.losses()[4], rel=1e-6)
    assert len(set(alone.losses())) == 3, "it goes on to learn"
    identity = alone.events(kind="start")[0]["identity"]
    told = json.loads((alone.result() / "adapter_config.json").read_text())
    assert told["use_dora"] == (kind == "DoRA") and told["r"] == (4 if kind == "DoRA" else 8)
    assert identity["lora_init"] == "default" and identity["lora_alpha"] == told["lora_alpha"]
