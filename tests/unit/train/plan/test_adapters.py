"""`adapter=`: what a launch sees of an adapter that a run begins with, before anything is sent."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from console import plan_view
from console.adapter_of_run import bring_adapter, require_base, run_of
from console.infra.machines.node import LocalNode
from tests.support.plans import decided, files_of, handed_on, look, ran
from train.errors import BadInput
from train.plan.model import adapters
from train.plan.model.hashes import base_hash
from train.plan.settings import request
from train.plan.settings.read_settings import load_config

LORA = {"peft_type": "LORA", "r": 4, "lora_alpha": 12, "base_model_name_or_path": "tiny (made by Motley: …)"}
DESCENT = {
    "base": "tiny", "hub": None, "sha256": "", "targets": "all-linear",
    "runs": [{"run": "manners", "recipe": "sft", "data": "letters", "steps": 40}],
}  # fmt: skip


def tensors(*names: str) -> bytes:
    """As safetensors writes them."""
    header = {name: {"dtype": "F32", "shape": [1], "data_offsets": [4 * i, 4 * i + 4]} for i, name in enumerate(names)}
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + bytes(4 * len(names))


def make(folder: Path, descent: dict[str, Any] | None = DESCENT, **config: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "adapter_config.json").write_text(json.dumps(LORA | config))
    layers = [f"model.layers.{i}.self_attn.{name}.lora_A.weight" for i in (0, 1) for name in ("v_proj", "q_proj")]
    (folder / "adapter_model.safetensors").write_bytes(tensors(*layers))
    if descent:
        (folder / "descent.json").write_text(json.dumps(descent))
    return folder


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    return make(tmp_path / "manners/adapter")


def asked(adapter: Path, **more: Any) -> request.Request:
    return request.read({"adapter": str(adapter), "dataset": "stdlib-qa", **more})


def refused(adapter: Path, **more: Any) -> str:
    with pytest.raises(BadInput) as wrong:
        asked(adapter, **more)
    return str(wrong.value)


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_its_settings_and_its_base_follow(mine, recipe):
    more = {"rewards": "exact"} if recipe == "grpo" else {}
    found = asked(mine, recipe=recipe, **more)
    settings = found.settings
    assert (settings["lora_r"], settings["lora_alpha"], settings["lora_targets"]) == (4, 12, "all-linear")
    assert found.model.name == settings["model"] == "tiny" and settings["adapter"] == str(mine)
    assert settings["adapter_hash"] == adapters.read(mine).hash
    assert asked(mine.parent, lora_r="4", model="tiny").settings["lora_r"] == 4


def test_a_dora_is_one_and_a_scale_need_not_be_whole(tmp_path):
    """As PEFT writes what began as PiSSA and has its scale by the root of its rank."""
    strong = make(tmp_path / "strong", use_dora=True)
    assert asked(strong).settings["dora"] is True and asked(strong).settings["weights"] == "gpu"
    said = "dora does not go with weights=stream: the layers' weights must be there"
    assert said in refused(strong, weights="stream")
    scaled = make(tmp_path / "scaled", use_rslora=True, lora_alpha=16.970562748477143)
    found = asked(scaled).settings
    assert (found["lora_alpha"], found["rslora"], found["dora"]) == (16.970562748477143, True, False)
    assert asked(make(tmp_path / "faint", lora_alpha=0.5)).settings["lora_alpha"] == 0.5
    assert load_config({"lora_alpha": "24.0"}).scoped("math")["lora_alpha"] == 24
    words = handed_on(decided({"adapter": str(scaled), "dataset": "stdlib-qa", "max_steps": 9}, look())).calibrate
    assert "--lora-r=4" in words


def test_of_others_the_layers_are_read_in_its_file(tmp_path):
    adapter = make(tmp_path / "theirs", None, base_model_name_or_path="Qwen/Qwen3-4B")
    found = asked(adapter, lora_targets="v_proj,q_proj")
    assert found.settings["lora_targets"] == "q_proj,v_proj" and found.model.hub == "Qwen/Qwen3-4B"
    assert "trained on Qwen3-4B, and tiny is not that model" in refused(adapter, model="tiny")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lora_r": 16}, "lora_r: the adapter has 4, 16 is asked for\nleave lora_r out"),
        ({"lora_alpha": 16}, "lora_alpha: the adapter has 12"),
        ({"lora_targets": "q_proj"}, "lora_targets: the adapter has all-linear, q_proj is asked for"),
        ({"rslora": "true"}, "rslora: the adapter has False, True is asked for"),
        ({"dora": "true"}, "dora: the adapter has False, True is asked for"),
        ({"lora_init": "pissa"}, "the run begins with trained weights, those of adapter\nleave lora_init out"),
        ({"method": "full"}, "adapter: method=full trains the base's own weights"),
        ({"model": "smollm2-135m"}, "adapter: manners was trained on tiny, and smollm2-135m is not that model"),
    ],
)
def test_what_contradicts_it_is_one_sentence(mine, values, said):
    found = refused(mine, **values)
    assert said in found and found.count("adapter: ") <= 2, found


def test_a_folder_is_its_base_by_hash_and_not_by_name(tmp_path):
    base = tmp_path / "tiny"
    base.mkdir()
    (base / "config.json").write_text("{}")
    (base / "model.safetensors").write_bytes(tensors("w"))
    own = make(tmp_path / "own", DESCENT | {"base": str(base), "sha256": base_hash(base)})
    assert asked(own, model=str(base)).model.folder == base
    (base / "model.safetensors").write_bytes(tensors("x"))
    assert "trained on tiny, and tiny is not that model with the same weights" in refused(own, model=str(base))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"peft_type": "IA3"}, "it is of the kind IA3, not LoRA"),
        ({"modules_to_save": ["lm_head"]}, "it trains whole layers beside it"),
        ({"bias": "all"}, "it trains biases"),
        ({"r": 0}, "a rank that is no whole number above 0"),
        ({"lora_alpha": float("inf")}, "or an alpha that is no number above 0"),
        ({"init_lora_weights": "pissa_niter_4"}, "it was begun as pissa_niter_4, which changes the base"),
        ({"init_lora_weights": "olora"}, "save it with PEFT as a plain LoRA: save_pretrained("),
        ({"init_lora_weights": "loftq"}, "make one model of it and its base with PEFT (merge_and_unload)"),
        ({"init_lora_weights": "lora_ga"}, "it was begun as lora_ga, which changes the base"),
        ({"alora_invocation_tokens": [7, 8]}, "it works behind tokens of its own alone (aLoRA)"),
        ({"rank_pattern": {"q_proj": 8}}, "a rank of its own for some layers"),
    ],
)
def test_what_no_run_here_trains_on_is_refused(tmp_path, config, said):
    assert said in refused(make(tmp_path / "odd", **config))


def test_what_is_no_adapter_is_said_so(tmp_path, mine):
    assert "there is no run 'nobody' with an adapter" in refused(Path("nobody"))
    assert "this folder holds no adapter" in refused(tmp_path)
    for name, text, said in (
        ("descent.json", '{"runs": 7}', "descent.json is not as Motley writes it"),
        ("descent.json", "x" * (2 << 20), "descent.json cannot be read: it is too large"),
        ("adapter_config.json", "[1", "adapter_config.json cannot be read"),
        ("adapter_model.safetensors", "short", "adapter_model.safetensors is cut off or damaged"),
    ):
        before = (mine / name).read_bytes()
        (mine / name).write_text(text)
        assert said in refused(mine)
        (mine / name).write_bytes(before)
    (mine / "adapter_model.safetensors").unlink()
    (mine / "adapter_model.bin").write_text("pickled")
    assert "pickled weights are not loaded" in refused(mine)
    (mine / "adapter_model.safetensors").symlink_to("/etc/hostname")
    assert "a link leads out of this folder" in refused(mine)


def test_it_travels_to_every_node_and_is_known_there_by_its_hash(mine):
    found = decided({"adapter": str(mine), "dataset": "stdlib-qa", "max_steps": 9}, look(), look())
    data = handed_on(found)
    assert data.adapter and data.adapter.folder == str(mine)
    assert set(data.adapter.files) == {"adapter_config.json", "adapter_model.safetensors", "descent.json"}
    line = next(line for line in plan_view.lines(found) if "begins" in line)
    assert "tiny → sft manners (letters, 40 steps); " in line
    for node in ("a", "b"):
        settings = yaml.safe_load(files_of(data, node)["config/training_config.yaml"])
        assert settings["adapter"] == f"/home/user/ai-cluster/models/adapters/{data.adapter.folder_name}"
        assert (settings["lora_r"], settings["lora_alpha"]) == (4, 12)
    load_config(settings | {"adapter": str(mine)})
    (mine / "adapter_model.safetensors").write_bytes(tensors("model.layers.0.q_proj.lora_A.weight"))
    with pytest.raises(BadInput, match="the adapter is not the one that the run was launched with"):
        load_config(settings | {"adapter": str(mine)})


def test_the_base_that_would_be_sent_is_compared_before(tmp_path):
    base = tmp_path / "models/base/tiny"
    base.mkdir(parents=True)
    (base / "model.safetensors").write_bytes(tensors("w"))
    own = make(tmp_path / "own", DESCENT | {"sha256": base_hash(base)})
    found = decided({"adapter": str(own), "dataset": "stdlib-qa", "max_steps": 9}, look())
    require_base(found, tmp_path)
    (base / "model.safetensors").write_bytes(tensors("x"))
    require_base(found, tmp_path / "elsewhere")
    with pytest.raises(BadInput, match="manners was trained on tiny, and tiny is not that model"):
        require_base(found, tmp_path)


def test_a_run_without_it_does_not_go_on_with_it(mine):
    values = {"model": "tiny", "dataset": "stdlib-qa", "lora_r": 4, "lora_alpha": 12, "run": "x", "max_steps": 9}
    there = ran(decided(values, look()))
    with pytest.raises(BadInput, match="adapter: it is not the one that the run began with"):
        decided(values | {"adapter": str(mine)}, there)
    again = decided(values | {"adapter": str(mine), "run": "y"}, there)
    assert again.request.step == 0
    goes_on = ran(again)
    found = decided({"resume": "y"}, goes_on, launched={"y": goes_on["runs"]["y"]["launched"]})
    assert found.request.step == 12 and found.settings["adapter"] == str(mine)
    with pytest.raises(BadInput, match="adapter: the nodes say that y was launched with"):
        decided({"resume": "y"}, goes_on)


def test_that_of_a_run_comes_from_a_node_that_has_it(tmp_path, mine):
    nodes = [LocalNode(name=name, home=str(tmp_path / name)) for name in ("a", "b")]
    (tmp_path / "a/logs/runs/manners").mkdir(parents=True)
    with pytest.raises(BadInput, match="adapter: no node knows a run 'manners'"):
        bring_adapter("manners", nodes, tmp_path / "here")
    make(tmp_path / "b/results/manners/adapter")
    folder = bring_adapter("manners", nodes, tmp_path / "here")
    assert adapters.find("manners", tmp_path / "here").hash == adapters.read(folder).hash == adapters.read(mine).hash
    make(tmp_path / "a/results/manners/adapter", r=8)
    (tmp_path / "a/results/manners/adapter/adapter_model.safetensors").write_bytes(tensors("a.lora_A.weight"))
    with pytest.raises(BadInput, match=r"adapter_model\.safetensors of manners is not the same on a, b"):
        bring_adapter("manners", nodes, tmp_path / "here")
    assert run_of({"adapter": "manners"}) == "manners"
    assert not any(run_of({"adapter": name}) for name in ("", str(mine), "owner/name"))


def test_a_node_that_falls_silent_amid_it_is_named(tmp_path, monkeypatch):
    def gone(*_, **__):
        return subprocess.Popen(["true"], stdout=subprocess.PIPE, start_new_session=True)

    make(tmp_path / "a/results/manners/adapter")
    monkeypatch.setattr(LocalNode, "fetch", gone)
    with pytest.raises(BadInput, match="the adapter of manners did not come whole from a"):
        bring_adapter("manners", [LocalNode(name="a", home=str(tmp_path / "a"))], tmp_path / "here")
