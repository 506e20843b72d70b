"""What a verdict on a model changes in a plan, and how it is kept. The proof itself is in tests/train/test_proof.py."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from console import plan_view
from console.hub import Asked
from console.infra import OnNode
from console.infra.machines.look import config_to_prove
from console.infra.machines.look import look as look_on_node
from tests.support.plans import VERSIONS, decided, gpu, handed_on, look
from tests.unit.train.plan.test_decide import SHAPE
from train.errors import BadInput
from train.plan.launch.decide import Decided
from train.plan.model import verdict
from train.plan.model.counts import Counts
from train.plan.model.memory import parameters
from train.plan.model.verdict import Verdict
from train.plan.settings.read_settings import load_config

LEAKS = Verdict(family="lfm2", unpacked="samples that share a row see each other (6.0e-04 off)", whole="a convolution")


def planned(found: Verdict | None, *looks: Any, config: Any = SHAPE, streams: str = "", **settings: Any) -> Decided:
    return decided(
        {"model": "me/small", "dataset": "you/data", **settings},
        *(looks or (look(),)),
        versions=VERSIONS | ({"cuda": "13.0"} if looks else {}),
        verdict=found,
        weights=dict.fromkeys(streams, "stream"),
        files=lambda _: (config, 2_000_000_000),
    )


def test_a_family_whose_packed_samples_see_each_other_is_trained_unpacked_and_the_plan_says_so():
    plan = planned(LEAKS)
    assert plan.settings["pack"] is False and plan.settings["pipes"] == "off"
    [line] = [line for line in plan_view.lines(plan) if line.startswith("  proof")]
    assert "a row for each sample" in line and "see each other" in line
    assert "--no-pack" in handed_on(plan).prepare
    plan = planned(None)
    assert plan.settings["pack"] is True and "proof" not in "\n".join(plan_view.lines(plan))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "a lfm2 model is not trained: no\nmodel: me/small"),
        ({"pipes": "a+b"}, "pipes: a.b does not go with this model"),
        ({"weights": "stream"}, "weights: stream does not go with this model"),
        ({"precision": "bf16"}, "precision: bf16 does not go with this model"),
    ],
)
def test_what_was_shown_to_be_wrong_is_refused_where_it_is_asked_for(settings, said):
    found = Verdict(family="lfm2", refused="" if settings else "no", held="no", whole="no", bf16="no", fp16="no")
    with pytest.raises(BadInput, match=said):
        planned(found, **settings)


@pytest.mark.parametrize(
    ("held", "settings", "said"),
    [
        ("another loss", {}, "weights: stream does not go with this model: another loss"),
        ("", {"method": "full"}, "weights: stream is for a frozen base, and method=full trains it"),
        ("", {"load_in": "8bit"}, "weights: stream does not know 8 bit"),
    ],
)
def test_a_node_that_streams_by_its_inventory_what_cannot_be_streamed_is_refused_in_the_plan(held, settings, said):
    found = Verdict(family="llama", held=held)
    with pytest.raises(BadInput, match=f"motley_weights: stream on a does not go with this run: {said}\nfix: write"):
        planned(found, streams="a", **settings)
    assert planned(Verdict(family="llama"), streams="a").fit.nodes[0].place.weights == "stream"
    if held:
        assert planned(found).fit.nodes[0].place.weights == "gpu"


def test_a_model_that_gives_no_numbers_in_fp16_is_refused_on_cards_without_bf16():
    found = Verdict(family="llama", fp16="its loss or gradient is no number")
    with pytest.raises(BadInput, match=r"does not compute in fp16.*\nfix: --set precision=fp32"):
        planned(found, gpu("GTX 1660", 12, "7.5"))
    assert planned(found, gpu("RTX 4090", 24)).fit.decisions.precision == "bf16"


def test_a_family_whose_numbers_are_too_large_for_fp16_computes_in_fp32_on_such_cards():
    plan = planned(None, gpu("GTX 1660", 12, "7.5"), config=SHAPE | {"model_type": "gemma3_text"})
    assert plan.fit.decisions.precision == "fp32"


def test_a_family_with_other_words_for_its_sizes_gets_them_from_the_verdict():
    named = {name: value for name, value in SHAPE.items() if name != "model_type"}
    found = Verdict(family="gpt2", shape=named)
    plan = planned(found, config={"model_type": "gpt2", "n_embd": 2048})
    assert plan.fit.facts and plan.fit.trained_weights > 0


def test_a_plan_counts_the_weights_as_the_model_itself_was_counted():
    sizes = {"linear": 7_000_000, "others": 3000, "table": 500_000, "rest": 64, "largest": 5_000}
    counts = Counts(layers=SHAPE["num_hidden_layers"], **sizes, adapters={"c_attn": 1000, "c_proj": 500})
    plan = planned(Verdict.from_json(asdict(Verdict(family="new", counts=counts))))
    assert parameters(plan.fit.facts) == 7_503_064
    assert plan.fit.trained_weights == 16 * 1500
    assert planned(Verdict(family="new", counts=counts), lora_targets="attn.c_attn").fit.trained_weights == 16 * 1000
    with pytest.raises(BadInput, match="lora_targets: no layer is called q_proj\nknown: c_attn c_proj"):
        planned(Verdict(family="new", counts=counts), lora_targets="q_proj,c_attn")


def test_a_mixture_is_planned_once_it_is_proven():
    told = SHAPE | {"model_type": "new", "num_experts": 128}
    with pytest.raises(BadInput, match="a mixture of experts: what it takes is known when it is proven"):
        planned(None, config=told)
    plan = planned(Verdict(family="new", shape={"intermediate_per_token": 6144}), config=told)
    assert plan.fit.facts.intermediate == 6144


def test_a_wrapper_is_planned_by_its_text():
    """gemma-3-4b-it says of its text four sizes alone; the proof has the others from transformers."""
    told = {"model_type": "mistral3", "text_config": {"model_type": "mistral", "hidden_size": 2560}}
    found = Verdict(family="mistral3", shape={name: size for name, size in SHAPE.items() if isinstance(size, int)})
    plan = planned(found, gpu("a", 24), config=told)
    assert (plan.fit.facts.hidden, plan.fit.facts.family, plan.fit.facts.wrapper) == (2560, "mistral", True)
    assert plan.fit.decisions.backend == "hf", "nobody has shown that unsloth leaves its pictures alone"


@pytest.mark.parametrize("recipe", ["sft", "grpo"])
def test_all_weights_of_a_wrapper_are_not_trained(recipe):
    """What is saved would lack its part for pictures."""
    found = Verdict(family="gemma3", full="it would be saved without its part for pictures or sounds")
    with pytest.raises(BadInput, match="method: full does not go with this model: it would be saved without"):
        load_config({"recipe": recipe, "model": "me/gemma", "method": "full"}).proven(found)
    assert "no method=full: it would be saved without" in found.line


def test_a_verdict_is_kept_by_config_and_versions(tmp_path, monkeypatch):
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path))
    folder = verdict.folder_of(SHAPE)
    assert folder.parent.parent == tmp_path
    folder.mkdir(parents=True)
    verdict.keep(folder, LEAKS)
    assert verdict.kept(folder) == LEAKS
    assert verdict.folder_of(SHAPE | {"eos_token_id": 7, "transformers_version": "0"}) == folder
    assert verdict.folder_of(SHAPE | {"num_hidden_layers": 3}) != folder
    monkeypatch.setattr(verdict, "version_of", lambda _: "another")
    assert verdict.folder_of(SHAPE) != folder


def test_only_a_model_that_is_fine_tuned_and_does_not_come_with_motley_is_proven(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    settings = {"dataset": "stdlib-qa"}
    assert config_to_prove({"model": str(tmp_path), **settings}, Asked({})) == {"model_type": "qwen3"}
    assert config_to_prove({"model": "tiny", **settings}, Asked({})) == {}
    assert config_to_prove({"recipe": "pretrain", **settings}, Asked({})) == {}
    assert config_to_prove({"model": "no such thing", **settings}, Asked({})) == {}


def test_other_recipes_are_not_asked():
    config = load_config({"recipe": "pretrain"})
    assert config.proven(replace(LEAKS, refused="no")) is config


@pytest.mark.parametrize(("node", "asked"), [("a", {"script": "ddp.py"}), ("b", {"values": {"model": "qwen3-4b"}})])
def test_a_script_of_ones_own_proves_nothing_and_no_node_but_the_head_does(node, asked):
    known = {"inventory_hostname": node, "ansible_play_hosts": ["a", "b"], "motley_request_checked": {"asked": asked}}
    assert look_on_node(known, {"packages": []}) == OnNode("launch_info", {"packages": []})
