"""What a model's files hold, before anything is sent or trained."""

import contextlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from console.hub import files
from tests.train.bases import save_in_4bit
from tests.train.families import make
from train.engine import pipe_members
from train.errors import BadInput
from train.models import backends, hf
from train.models.backends import ModelSpec
from train.plan.model import weight_files
from train.plan.model.catalogue import facts_of, read_config
from train.plan.model.sources import BaseModel
from train.plan.settings.read_settings import load_config
from train.recipes.images import pretrained as picture_bases
from train.recipes.sft import recipe as sft


def wanted_of(folder):
    config = json.loads((folder / "config.json").read_text())
    return weight_files.wanted(facts_of(config, "x"), config)


@pytest.mark.parametrize("family", weight_files.FAMILIES)
@pytest.mark.parametrize(
    "other", [{}, {"attention_bias": True}, {"mlp_bias": True}, {"tie_word_embeddings": True}], ids=str
)
def test_the_weights_of_a_family_are_known_as_its_class_has_them(family, other, tmp_path):
    folder = make(family, tmp_path / "base", **other)
    weight_files.require(folder)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    assert wanted_of(folder) == {name: list(weight.shape) for name, weight in model.named_parameters()}


def without(held, part):
    return {name: weight for name, weight in held.items() if part not in name}


SPOILT = {
    "a head": (lambda held: without(held, "lm_head"), "files lack lm_head.weight"),
    "gptq": (
        lambda held: {name.replace("v_proj.weight", "v_proj.qweight"): weight for name, weight in held.items()},
        r"files lack model.layers.0.self_attn.v_proj.weight and 1 more",
    ),
    "left over": (
        lambda held: {**held, "score.weight": torch.zeros(2, 64)},
        "files hold what no such model has: score.weight",
    ),
    "fp8": (
        lambda held: {n: w.to(torch.float8_e4m3fn) if "_proj" in n else w for n, w in held.items()},
        r"numbers that are not loaded: model.layers.0.mlp.down_proj.weight \(F8_E4M3\) and 13 more",
    ),
    "shape": (
        lambda held: {**held, "lm_head.weight": torch.zeros(1000, 64)},
        r"another shape than config.json says: lm_head.weight \(\[1000, 64\], not \[1024, 64\]\)",
    ),
}


def looked_at(folder):
    return files(BaseModel(name="base", source="folder", reason="", folder=str(folder)), {})


@pytest.mark.parametrize("how", SPOILT)
def test_files_that_do_not_hold_the_whole_model_are_refused_by_name(how, tmp_path):
    """transformers fills the gaps by lot, and a run on that would end in `done`."""
    folder = make("llama", tmp_path / "base")
    spoil, said = SPOILT[how]
    file = folder / "model.safetensors"
    save_file(spoil(load_file(file)), file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=said):
        sft.start(load_config({"model": str(folder)}), print)
    with pytest.raises(BadInput, match=said):  # the controller, before it sends anything
        looked_at(folder)


@pytest.mark.parametrize("method", ["gptq", "awq", "fp8"])
def test_a_model_quantised_by_another_program_is_refused_by_its_name(method, tmp_path):
    folder = make("llama", tmp_path / "base")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": method}}))
    for asked in (lambda: looked_at(folder), lambda: facts_of(read_config(folder), "x")):
        with pytest.raises(BadInput, match=f"quantised by {method}, which cannot be trained on"):
            asked()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda folder: cut(folder / "model.safetensors"), "model.safetensors is cut off or damaged"),
        (lambda folder: headed(folder, b"[]"), "model.safetensors is cut off or damaged"),
        (lambda folder: headed(folder, b'{"lm_head.weight": 1}'), "model.safetensors is cut off or damaged"),
        (lambda folder: listed(folder, "{"), r"model\.safetensors\.index\.json is cut off or damaged"),
        (lambda folder: listed(folder, '{"metadata": {}}'), r"model\.safetensors\.index\.json is cut off or damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text('{"model": '), "tokenizer.json is cut off or damaged"),
        (lambda folder: (folder / "tokenizer.json").write_text("[]"), "tokenizer.json is cut off or damaged"),
        (lambda folder: (folder / "config.json").write_text('{"model_type": '), "config.json is broken"),
        (lambda folder: replace_in(folder / "config.json", '_hidden_layers": 2', '_hidden_layers": null'), "'num_hid"),
        (lambda folder: replace_in(folder / "config.json", "intermediate_size", "size"), "lacks 'intermediate_size'"),
        (lambda folder: make("llama", folder, vocab_size=900), "tokenizer has 1000 tokens, the model's vocabulary 900"),
    ],
)
def test_a_damaged_folder_is_named_before_it_is_sent(spoil, said, tmp_path):
    folder = make("llama", tmp_path / "base")
    tokenizer = {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 999, "content": "b"}]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    spoil(folder)
    with pytest.raises(BadInput, match=said):
        looked_at(folder)


def test_weights_that_nothing_can_be_compared_with_are_refused(tmp_path):
    """torch alone reads a .bin, and only when the model is loaded."""
    folder = make("llama", tmp_path / "base")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    for asked in (lambda: sft.start(load_config({"model": str(folder)}), print), lambda: looked_at(folder)):
        with pytest.raises(BadInput, match=r"no weights as \.safetensors.*\n.*\n.*save_pretrained"):
            asked()


def test_of_any_family_a_weight_that_the_files_lack_is_refused(tmp_path):
    """As `train run` takes them: a launch refuses the family."""
    folder = make("olmo2", tmp_path / "base")
    file = folder / "model.safetensors"
    save_file(without(load_file(file), "lm_head"), file, metadata={"format": "pt"})
    with pytest.raises(BadInput, match=r"files lack lm_head\.weight"):
        backends.get("hf").build(backends.ModelSpec(folder=str(folder), method="base"))


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def headed(folder, header):
    (folder / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)


def listed(folder, text):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(text)


def replace_in(file, old, new):
    file.write_text(file.read_text().replace(old, new))


def test_a_model_in_several_files_or_saved_without_its_head_is_whole(tmp_path):
    folder = make("llama", tmp_path / "base", tie_word_embeddings=True)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.model.save_pretrained(tmp_path / "headless")
    weight_files.require(tmp_path / "headless")
    model.save_pretrained(tmp_path / "several", max_shard_size="50KB")
    weight_files.require(tmp_path / "several")
    next((tmp_path / "several").glob("*-of-*.safetensors")).unlink()
    with pytest.raises(BadInput, match="safetensors is missing"):
        weight_files.require(tmp_path / "several")


def test_files_quantised_by_bitsandbytes_hold_the_whole_model(tmp_path):
    weight_files.require(save_in_4bit(tmp_path / "tiny-4bit"))


LOADS = {
    "a base": lambda folder: hf.build(ModelSpec(folder=str(folder))),
    "its settings": lambda folder: hf.config_of(str(folder)),
    "pictures": picture_bases.config_of,
    "a stage": pipe_members._model_config,
}


@pytest.mark.parametrize("kind", LOADS)
def test_the_code_that_a_model_brings_along_is_not_run_whatever_is_answered(kind, tmp_path, monkeypatch):
    """In a terminal the library would ask, and a y would run it."""
    told = {"model_type": "mine", "auto_map": {name: f"mine.{name}" for name in ("AutoConfig", "AutoModelForCausalLM")}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.setattr("builtins.input", lambda *_: "y")
    with contextlib.suppress(BadInput, ValueError):
        LOADS[kind](tmp_path)
    assert not (tmp_path / "ran").exists()
