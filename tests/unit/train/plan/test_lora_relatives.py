"""LoRA's relatives in a plan: what does not go with them is refused in a sentence, what is `auto` gives way, and their
memory is counted."""

from dataclasses import replace
from typing import Any

import pytest

from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import resolve_model
from train.plan.model.counts import linear_shapes
from train.plan.model.memory import GIB, Setup, memory, trained_parameters
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.placement.fit import setup_for
from train.plan.settings import lora_relatives, request
from train.plan.settings.read_settings import SftConfig, load_config

CARD = Device(name="a", device="cuda", memory_bytes=24 * GIB, bf16=True, unsloth=True)


def settings(**values: Any) -> Any:
    return load_config({"model": "tiny", **values})


def facts(name: str = "qwen3-4b") -> Any:
    return resolve_model(name).facts


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"dora": True, "weights": "stream"},
            "dora does not go with weights=stream: the layers' weights must be there",
        ),
        ({"dora": True, "pipes": "a+b"}, r"dora does not go with pipes=a\+b"),
        ({"dora": True, "load_in": "8bit"}, "dora does not go with load_in=8bit: PEFT's DoRA knows no 8 bit"),
        ({"dora": True, "backend": "unsloth"}, "backend: DoRA: unsloth's kernels have none"),
        ({"dora": True, "lora_init": "pissa"}, "dora and lora_init do not go together"),
        ({"dora": True, "method": "full"}, "dora: it is of an adapter, and method=full has none"),
        ({"lora_init": "pissa", "weights": "stream"}, "lora_init does not go with weights=stream"),
        ({"lora_init": "olora", "pipes": "a+b"}, "lora_init does not go with pipes"),
        ({"loraplus_lr_ratio": 16, "method": "full"}, "loraplus_lr_ratio: it is of an adapter"),
        (
            {"lora_dropout": 0.1, "pipes": "a+b"},
            "lora_dropout does not go with pipes.*the mask would be that of the newest",
        ),
        ({"lora_dropout": 0.1, "backend": "unsloth"}, "backend: lora_dropout"),
        ({"neftune_alpha": 5, "backend": "unsloth"}, "backend: neftune_alpha"),
        ({"recipe": "grpo", "rewards": "exact", "neftune_alpha": 5}, "neftune_alpha: 5.0 does not go with recipe=grpo"),
    ],
)
def test_what_does_not_go_together_is_refused(values, said):
    with pytest.raises(BadInput, match=said):
        load_config(values)


@pytest.mark.parametrize("load_in", ["4bit", "8bit"])
def test_a_base_that_must_be_rounded_is_not_taken_apart(load_in):
    """Also where the plan has chosen it, as the base does not fit otherwise."""
    said = f"lora_init: pissa takes the base apart, and in {load_in} it is rounded\nuse load_in"
    with pytest.raises(BadInput, match=said):
        choose_on_devices(settings(lora_init="pissa", load_in=load_in), [CARD], facts())
    small = replace(CARD, memory_bytes=6 * GIB)
    assert choose_on_devices(settings(), [small], facts()).decisions.load_in == "4bit"
    with pytest.raises(BadInput, match="lora_init: pissa"):
        choose_on_devices(settings(lora_init="pissa"), [small], facts())


def test_what_is_auto_gives_way():
    found = settings(dora=True)
    assert (found.weights, found.pipes) == ("gpu", "off")
    assert settings(lora_dropout=0.1).pipes == "off" and settings(lora_dropout=0.1).weights == "auto"
    assert (settings().weights, settings().pipes, settings(neftune_alpha=5).pipes) == ("auto", "auto", "auto")
    assert choose_on_devices(settings(), [CARD], facts()).decisions.backend == "unsloth"
    for values in ({"dora": True}, {"neftune_alpha": 5}, {"lora_dropout": 0.1}, {"lora_init": "olora"}):
        chosen = choose_on_devices(settings(**values), [CARD], facts()).decisions
        assert chosen.backend == "hf" and "unsloth's kernels" in chosen.whys["backend hf"]
    assert choose_on_devices(settings(loraplus_lr_ratio=16), [CARD], facts()).decisions.backend == "unsloth"


def test_what_is_trained_is_called_by_its_name():
    assert settings().about == "LoRA r16 all-linear"
    assert settings(dora=True, loraplus_lr_ratio=16).about == "DoRA+ r16 all-linear"
    assert settings(lora_init="pissa").about == "PiSSA r16 all-linear"


def test_their_memory_is_counted():
    plain = memory(facts(), Setup())
    dora = Setup(dora=True)
    wide = sum(wide for _, wide in linear_shapes(facts()).values())
    assert trained_parameters(facts(), dora) == trained_parameters(facts(), Setup()) + wide * facts().layers
    grown = memory(facts(), dora)
    assert grown.activations > plain.activations + 4 * facts().intermediate * facts().hidden
    first = memory(facts(), Setup(first=True))
    assert first.base == plain.base + plain.adapter and first.activations > plain.activations
    assert memory(facts(), Setup(drawn=True)).activations > plain.activations
    assert memory(facts(), Setup(drawn=True, dropped=True)).activations > memory(facts(), Setup(drawn=True)).activations


def test_a_run_is_planned_by_them():
    setup = setup_for(settings(dora=True, lora_dropout=0.1), "true")
    assert setup.dora and setup.drawn and setup.dropped and not setup.first
    assert setup_for(settings(lora_init="pissa"), "true").first
    assert not setup_for(settings(loraplus_lr_ratio=16), "true").drawn
    assert setup_for(settings(neftune_alpha=5), "true").drawn


def test_a_speed_is_of_the_same_kind():
    assert set(lora_relatives.NAMES) <= set(SftConfig.COUNTED)


def test_new_tokens_are_declined_with_the_reason():
    with pytest.raises(BadInput, match="modules_to_save: embeddings and output stay as the base has them"):
        request.read({"model": "tiny", "modules_to_save": "embed_tokens"}, what="variable")
