"""The card beside a result: its header as the hub reads it, and what somebody needs to load it."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from train.plan.settings.read_settings import PretrainConfig, SftConfig
from train.recipes import model_card

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"


def launched(home: Path, given: dict[str, Any], model: dict[str, Any]) -> SftConfig:
    """As on a node: names have become folders."""
    config = SftConfig(run="notes", home=str(home), model=f"{home}/models/base/x", dataset=f"{home}/data/processed/y")
    config.log_folder.mkdir(parents=True)
    (config.log_folder / "launch.json").write_text(json.dumps({"all": given, "model": model}))
    return config


def card_of(config: SftConfig) -> tuple[dict[str, Any], str]:
    run: Any = SimpleNamespace(config=config, rows=range(320), step=40)
    text = model_card.card(run, before=6.6123, after=4.8)
    _, header, body = text.split("---\n", 2)
    return yaml.safe_load(header), body


def test_a_base_of_the_hub_is_named_by_its_id(tmp_path):
    model = {"name": "smollm2-135m", "hub": SMOLLM2, "folder_name": "smollm2-135m"}
    given = {"model": "smollm2-135m", "dataset": "/home/anna/secret/notes.jsonl"}
    header, body = card_of(launched(tmp_path, given, model))
    assert header["base_model"] == SMOLLM2 and header["library_name"] == "peft"
    assert header["base_model_relation"] == "adapter" and "datasets" not in header
    assert "| held-out loss | 6.612 → 4.800 |" in body and "| steps | 40 of " in body
    assert "`notes.jsonl`, 320 rows" in body and "secret" not in body and str(tmp_path) not in body
    assert 'AutoPeftModelForCausalLM.from_pretrained("path/of/this/folder")' in body
    assert f'AutoTokenizer.from_pretrained("{SMOLLM2}")' in body
    assert "./motley export --run notes --to gguf" in body and "ollama create notes -f Modelfile" in body


def test_data_of_the_hub_is_named_by_its_id(tmp_path):
    model = {"name": "Anything-7B", "hub": "Qwen/Anything-7B", "folder_name": "Qwen--Anything-7B"}
    header, _ = card_of(launched(tmp_path, {"model": "Qwen/Anything-7B", "dataset": "alpaca"}, model))
    assert (header["base_model"], header["datasets"]) == ("Qwen/Anything-7B", ["yahma/alpaca-cleaned"])


def test_of_a_base_that_motley_makes_it_says_that_it_cannot_be_loaded_elsewhere(tmp_path):
    config = launched(tmp_path, {"model": "tiny"}, {"name": "tiny", "hub": None, "folder_name": "tiny"})
    header, body = card_of(config)
    assert "base_model" not in header
    assert "this cannot be loaded elsewhere" in body and "./motley ask --run notes" in body and "```" not in body
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": config.model, "r": 16}))
    model_card.name_base(tmp_path, model_card.origin_of(config))
    assert json.loads((tmp_path / "adapter_config.json").read_text()) == {
        "base_model_name_or_path": "tiny (made by Motley: it cannot be loaded elsewhere)",
        "r": 16,
    }


@pytest.mark.parametrize("model", [{"name": "mine", "hub": None, "folder_name": "mine"}, {}])
def test_a_folder_of_the_owners_stays_one(tmp_path, model):
    """Also of a run that was launched before launch.json said what the hub calls it."""
    config = launched(tmp_path, {"model": "/home/anna/mine"}, model)
    own = Path(config.model)
    own.mkdir(parents=True)
    (own / "config.json").write_text("{}")
    assert model_card.origin_of(config).base_for_others == ("/home/anna/mine" if model else str(own))
    _, body = card_of(config)
    name = "mine" if model else "x"
    assert f'AutoTokenizer.from_pretrained("path/of/{name}")' in body
    assert "anna" not in body and str(tmp_path) not in body, "no folder is given away"


@pytest.mark.parametrize(("method", "has_adapter"), [("lora", True), ("full", False)])
def test_what_is_trained_of_a_wrapper_is_put_into_the_whole_one(tmp_path, method, has_adapter):
    config = replace(launched(tmp_path, {"model": "mine"}, {"name": "mine", "hub": None}), method=method)
    Path(config.model).mkdir(parents=True)
    (Path(config.model) / "config.json").write_text('{"text_config": {}}')
    _, body = card_of(config)
    assert 'AutoModelForImageTextToText.from_pretrained("path/of/mine")' in body
    assert ("PeftModel" in body, "ollama" in body) == (has_adapter, has_adapter)
    assert ('load_file("path/of/this/folder/model.safetensors"), strict=False' in body) != has_adapter


@pytest.mark.parametrize("file", ["~nobody-of-this-name/notes.jsonl", f"/{300 * 'x'}/notes.jsonl"])
def test_data_of_the_controller_need_not_be_within_reach_of_the_node(tmp_path, file):
    """There is no such user here, and a system that refuses the question, as of a folder closed to the login user."""
    header, body = card_of(launched(tmp_path, {"model": "tiny", "dataset": file}, {"name": "tiny", "hub": None}))
    assert "`notes.jsonl`, 320 rows" in body and "datasets" not in header


def test_what_cannot_be_read_of_a_launch_leaves_the_nodes_own_names(tmp_path):
    config = launched(tmp_path, {}, {})
    for torn in ('{"all": {"mod', "[]", '{"all": 1, "model": null}'):
        (config.log_folder / "launch.json").write_text(torn)
        origin = model_card.origin_of(config)
        assert (origin.base, origin.hub, origin.dataset) == (config.model, None, config.dataset)
        new = PretrainConfig(run="notes", home=str(tmp_path), dataset="/srv/books")
        no_weights, nothing = SimpleNamespace(parameters=[]), SimpleNamespace(newest=None)
        run: Any = SimpleNamespace(config=new, rows=range(8), step=2, trained=no_weights, milestones=nothing)
        assert "`books`, 8 rows of 512 tokens" in model_card.new_card(run)
