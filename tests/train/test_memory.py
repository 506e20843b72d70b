"""The planner: parameter counts against transformers, and what must hold over all inputs."""

from dataclasses import asdict, replace

import peft
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM

from tests.gpu.weights import config_of
from tests.support.catalogue_shapes import SHAPES, counts_of
from train.plan.launch.plan_cards import what_if
from train.plan.model.catalogue import Facts, catalogue, resolve_model
from train.plan.model.counts import linear_shapes
from train.plan.model.memory import (
    ALL_LINEAR,
    GIB,
    Setup,
    changes_that_fit,
    fits,
    largest_micro_batch,
    lora_parameters,
    memory,
    parameters,
)
from train.plan.speed.step_time import ring_bytes

MODELS = sorted(catalogue()["models"])


def on_meta_device(facts: Facts):
    config = config_of(facts)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.tie_weights()
    return model


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_those_of_transformers(name):
    facts = resolve_model(name).facts
    if name in SHAPES:
        assert asdict(facts.counts) == counts_of(name), "python -m tests.support.catalogue_shapes"
        return
    model = on_meta_device(facts)
    assert parameters(facts) == pytest.approx(sum(p.numel() for p in model.parameters()), rel=1e-3)
    linears = {
        path.rsplit(".", 1)[-1]: (module.in_features, module.out_features)
        for path, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and path != "lm_head"
    }
    assert linear_shapes(facts) == linears


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ALL_LINEAR])
def test_adapter_has_the_size_that_peft_makes(targets):
    facts = resolve_model("smollm2-135m").facts
    named = targets[0] if targets == ALL_LINEAR else list(targets)
    config = peft.LoraConfig(r=8, target_modules=named, task_type="CAUSAL_LM")
    model = peft.get_peft_model(on_meta_device(facts), config)
    made = sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    assert lora_parameters(facts, 8, targets) == made


def test_the_figures_that_people_quote():
    facts = resolve_model("llama2-7b").facts
    assert lora_parameters(facts, 16, ("q_proj", "v_proj")) == pytest.approx(8.4e6, rel=0.01)
    assert 5 < memory(facts, Setup(load_in="4bit", row_length=512)).total / GIB < 8
    assert 13 < memory(facts, Setup(load_in="16bit", row_length=512)).total / GIB < 18
    assert ring_bytes(2 * lora_parameters(facts, 16, ALL_LINEAR), 3) * 8 / 0.94e9 == pytest.approx(0.91, abs=0.01)


@pytest.mark.parametrize(("rows", "length", "measured_gib"), [(8, 256, 5.75), (4, 160, 2.62)])
def test_the_estimate_is_near_what_was_measured(rows, length, measured_gib):
    """SmolLM2-135M, LoRA r 16 on all layers, fp32 on a CPU: peak of `train run` (docs/BENCHMARKS.md)."""
    setup = Setup(load_in="32bit", device="cpu", checkpointing=None, micro_batch=rows, row_length=length)
    assert memory(resolve_model("smollm2-135m").facts, setup).total / GIB == pytest.approx(measured_gib, rel=0.06)


SETUPS = st.builds(
    Setup,
    load_in=st.sampled_from(["4bit", "8bit", "16bit"]),
    lora_r=st.sampled_from([1, 8, 16, 64]),
    row_length=st.sampled_from([256, 512, 2048, 8192]),
    micro_batch=st.integers(1, 8),
    checkpointing=st.booleans(),
)
FACTS = st.sampled_from(MODELS).map(lambda name: resolve_model(name).facts)


@given(FACTS, SETUPS)
def test_more_of_anything_takes_more_memory(facts, setup):
    total = memory(facts, setup).total
    assert total > 0
    assert memory(facts, replace(setup, micro_batch=setup.micro_batch + 1)).total > total
    assert memory(facts, replace(setup, row_length=setup.row_length * 2)).total > total
    assert memory(facts, replace(setup, lora_r=setup.lora_r * 2)).total > total
    assert memory(facts, replace(setup, checkpointing=True)).total <= total
    assert memory(facts, replace(setup, weights="stream")).base < memory(facts, setup).base


@given(FACTS, SETUPS)
def test_what_is_trained_takes_sixteen_bytes_a_weight(facts, setup):
    """The weight, its gradient, and AdamW's two numbers, all fp32."""
    m = memory(facts, setup)
    assert m.adapter + m.gradients + m.optimizer == 16 * lora_parameters(facts, setup.lora_r, setup.lora_targets)


@given(FACTS, SETUPS, st.integers(4, 80))
def test_the_largest_micro_batch_fits_and_the_next_does_not(facts, setup, card_gib):
    most = largest_micro_batch(facts, setup, card_gib * GIB)
    assert most == 0 or fits(facts, replace(setup, micro_batch=most), card_gib * GIB)
    assert most == 64 or not fits(facts, replace(setup, micro_batch=most + 1), card_gib * GIB)


@given(FACTS, SETUPS, st.integers(2, 80))
def test_what_is_said_to_fit_fits(facts, setup, card_gib):
    changes = changes_that_fit(facts, setup, card_gib * GIB)
    if changes is not None:
        assert fits(facts, replace(setup, **changes), card_gib * GIB)


def test_a_card_that_is_too_small_gets_the_knob_that_helps():
    values = {"model": "llama2-7b", "max_seq_length": 2048}
    found = what_if("big=24,small=8", values | {"micro_batch": 8})
    big, small = found.data["nodes"]
    assert (found.fits, found.data["ok"], big["fits"], small["fits"]) == (False, False, True, False)
    assert small["fix"] == {"micro_batch": 5}
    assert what_if("big=24,small=8", values | {"micro_batch": 5}).fits
