"""Machines that need not exist: how they are written, and what is asked of them."""

import json

import pytest

from train.errors import BadInput
from train.plan.launch.plan_cards import parse_cards, what_if
from train.plan.model.memory import GIB


def test_machines_are_written_with_commas_and_cards_of_one_with_plus():
    first, second, third = parse_cards("24, 8+8GB,cpu:16", {"machine-2": 64.0})
    assert [one.name for one in (first, second, third)] == ["machine-1", "machine-2", "machine-3"]
    assert [one.memory_bytes / GIB for one in (first, second, third)] == [24, 8, 16]
    assert (second.processes, second.main_bytes) == (2, 32 * GIB), "each card's process has half of the main memory"
    assert third.device == "cpu" and not third.bitsandbytes
    assert [one.name for one in parse_cards("desktop=24,laptop=6", {})] == ["desktop", "laptop"]


def test_a_card_may_be_given_by_its_name():
    words = (
        "RTX 5070 Ti, laptop=4070, 3070 ti, 3090+NVIDIA GeForce RTX 4090, gtx 1650, RTX 4060 Ti 16GB, T4, 2x3060, 2 × 8"
    )
    found = parse_cards(words, {})
    assert [one.memory_bytes / GIB for one in found] == [16, 8, 8, 24, 4, 16, 16, 12, 8]
    assert [one.processes for one in found] == [1, 1, 1, 2, 1, 1, 1, 2, 2]
    assert parse_cards("cpu:1024", {})[0].memory_bytes / GIB == 1024


def test_no_data_set_is_looked_for_that_nobody_named():
    """The usual one of pictures is a package, which this machine may not have."""
    assert what_if("24,8", {"recipe": "images", "model": "resnet50", "image_size": 224}).fits


@pytest.mark.parametrize(
    ("cards", "values", "wrong"),
    [
        ("24,x", {}, "'x' is no machine\n.*like --cards 24"),
        ("24,0", {}, "'0' is no machine"),
        ("24,-8", {}, "'-8' is no machine"),
        ("RTX 9999,24", {}, "'RTX 9999' is no machine"),
        ("a=24,a=8", {}, "one name"),
        ("24", {"main_memory": "laptop=8"}, "laptop is none of the machines\nthey are machine-1"),
        ("a=24,b=8", {"speeds": "a=2"}, "speeds: b: a number is missing"),
        ("a=24", {"speeds": "a=2", "links": "b=100"}, "links: b is none of the machines"),
        ("a=24", {"speeds": "a=2", "wireless": "b"}, "wireless: b is none of the machines"),
        ("24", {"link_mbit": "fast"}, "link_mbit: 'fast' is no number above 0"),
        ("24", {"model": "lama2-7b"}, "did you mean llama2-7b"),
        ("24", {"lora_targets": "q_proj,w"}, "no layer is called w"),
        ("24", {"max_seq_length": 60000}, "up to 60000 tokens, tiny was made for 512\n.*=512"),
        ("24", {"main_memori": "a=8"}, "unknown variable 'main_memori'"),
    ],
)
def test_what_is_wrong_is_named_in_three_lines(cards, values, wrong):
    with pytest.raises(BadInput, match=wrong) as caught:
        what_if(cards, {"model": "tiny"} | values)
    assert len(str(caught.value).splitlines()) <= 3


GRPO = {"recipe": "grpo", "rewards": "exact"}


@pytest.mark.parametrize(
    ("cards", "values", "shown"),
    [
        ("16,8", {"model": "qwen3-30b-a3b"}, ["held", "streamed", "cut"]),
        ("8,8", {"model": "gemma4-e4b"}, ["held"]),  # known of the catalogue's before anybody has proven them
        ("8,6", {"model": "qwen3-14b"} | GRPO, ["held"]),  # each token of an answer needs the whole base
        ("24,24", {"model": "llama2-7b"}, []),  # all hold it
        ("24,4+4", {"model": "llama2-7b"}, []),  # one has several cards
    ],
)
def test_the_ways_that_are_shown_beside_one_another(cards, values, shown):
    words = [line.partition(" ")[0] for line in what_if(cards, values).lines]
    assert [word for word in words if word in ("held", "streamed", "cut")] == shown


def test_a_mixture_says_what_stays_in_16_bit_and_which_setting_lets_it_be_streamed():
    found = what_if("16,8,8", {"model": "qwen3-30b-a3b"})
    assert "  experts in 16bit, 54.0 GB: bitsandbytes has linear layers alone in 4bit" in found.lines
    first, *others = (line.partition("✗ ")[2] for line in found.lines if line.startswith("machine-"))
    assert first == "would fit with lora_r=8, streamed"
    assert others == ["would fit with lora_targets=k_proj,o_proj,q_proj,v_proj, streamed"] * 2
    small = {"lora_targets": "k_proj,o_proj,q_proj,v_proj"}
    again = what_if("16,8,8", {"model": "qwen3-30b-a3b", **small})
    assert again.fits and all(node["weights"] == "stream" for node in again.data["nodes"])
    assert not any("16bit" in line for line in what_if("24", {"model": "qwen3-8b"}).lines if "experts" in line)


def test_layers_that_main_memory_cannot_hold_may_come_from_the_files_in_16_bit():
    asked = {"model": "qwen3-30b-a3b", "main_memory": "machine-1=32"}
    [line] = [line for line in what_if("24", asked).lines if line.startswith("machine-1")]
    assert "would fit with load_in=16bit, streamed from its files in each step; to stream it, 36" in line
    again = what_if("24", asked | {"load_in": "16bit"})
    assert again.fits and again.data["nodes"][0]["weights"] == "stream"
    assert "no setting makes it fit" in what_if("16", asked).lines[-2], "two settings at once are not searched"


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "vit", "hidden_size": "x"},
        {"model_type": "vit", "patch_size": 0},
        {"model_type": "resnet", "hidden_sizes": 5},
        {"model_type": "resnet", "hidden_sizes": []},
        {"model_type": "convnext", "depths": [1, 2]},
    ],
)
def test_the_sizes_of_somebody_elses_picture_model_are_not_trusted(config, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadInput, match=f"config.json is broken: its sizes make no {config['model_type']} model"):
        what_if("24", {"recipe": "images", "model": str(tmp_path)})


@pytest.mark.parametrize("odd", [{"head_dim": "x"}, {"num_key_value_heads": [2]}, {"intermediate_per_token": "x"}])
def test_a_size_that_is_no_number_counts_as_one_that_is_not_there(odd, tmp_path):
    names = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    config = {"model_type": "llama", "max_position_embeddings": 512, **dict.fromkeys(names, 8)}
    needs = []
    for more in ({}, odd):
        (tmp_path / "config.json").write_text(json.dumps(config | more))
        needs.append(what_if("24", {"model": str(tmp_path)}).data["nodes"])
    assert needs[0] == needs[1]


def test_machines_that_share_no_step_exchange_nothing():
    asks = {"model": "qwen3-4b", "recipe": "generate"}
    text = "\n".join(what_if("24,8", asks).lines)
    assert "base in 4bit, nothing is trained, rows of 1024 tokens" in text
    assert "sends per step" not in text and "held" not in text
    with pytest.raises(BadInput, match="speeds: machines share no step of recipe=generate"):
        what_if("a=24,b=8", asks | {"speeds": "a=3,b=1"})


@pytest.mark.parametrize(
    ("cards", "values", "fix"),
    [
        ("24", {"recipe": "grpo", "engine": "vllm", "rewards": "json"}, None),
        ("12", {"lora_init": "pissa", "load_in": "16bit", "weights": "gpu"}, None),
        ("12", {"load_in": "16bit", "weights": "gpu"}, {"load_in": "4bit"}),
        ("8", {"recipe": "evaluate", "tasks": "arc_easy"}, {"requests_at_once": 1}),
    ],
)
def test_a_fix_names_settings_that_the_recipe_takes(cards, values, fix):
    [node] = what_if(cards, {"model": "qwen3-8b", **values}).data["nodes"]
    assert (node["fits"], node["fix"]) == (False, fix)


def test_no_setting_is_offered_that_would_have_to_stream_what_is_held_as_set():
    lines = what_if("8,8", {"model": "qwen3-30b-a3b", "weights": "gpu"}).lines
    assert all("no setting makes it fit" in line for line in lines if line.startswith("machine-"))
