"""Memory by the model itself: what a plan counts for weights, adapter and optimizer is what a process really holds."""

import copy
from dataclasses import replace

import peft
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.train.live_bytes import LiveBytes
from tests.train.proven_families import PACKED, REFUSED, UNPACKED, config_of
from train.models import four_bit, hf
from train.models.backends import ModelSpec
from train.models.weights import trained_weights
from train.plan.model.catalogue import Facts
from train.plan.model.counts import Counts, counts_of
from train.plan.model.memory import Setup, expert_copies, lora_parameters, memory, parameters
from train.plan.model.verdict import Verdict
from train.proof import admit_model, miniature
from train.proof.count_weights import count

OFF = 0.05
WRAPPERS = ("gemma3",)
FAMILIES = [name for name in (*PACKED, *UNPACKED, *REFUSED) if name not in WRAPPERS]
WIDE = {"hidden_size": 512, "intermediate_size": 1024, "moe_intermediate_size": 1024}
"""Of a width at which bitsandbytes' tables, a kilobyte for each weight, do not count."""


def facts_of(config):
    """Nothing but the counts, as of a family with words of its own."""
    known = count(config)
    shape = {"hidden": 64, "heads": 4, "kv_heads": 4, "head_dim": 16, "intermediate": 96, "vocab": 256}
    family = config.model_type
    return Facts(family=family, layers=known.layers, **shape, tied=False, positions=128, counts=known)


def built(config, folder, **more):
    miniature.write(config, folder)
    return hf.build(ModelSpec(folder=str(folder), lora_r=2, max_seq_length=miniature.POSITIONS, **more))


def bytes_of(tensors):
    """Each once, with all that belongs to a 4-bit weight."""
    each = {id(one): one for one in tensors}.values()
    parts = [list(four_bit.apart(one).values()) if four_bit.is_four_bit(one) else [one] for one in each]
    return sum(part.nbytes for some in parts for part in some)


@pytest.mark.parametrize("name", FAMILIES)
def test_what_is_planned_is_what_a_process_holds(name, tmp_path):
    config = config_of(name)
    model = built(config, tmp_path)
    trained = list(trained_weights(model).values())
    for weight in trained:
        weight.grad = torch.zeros_like(weight)
    optimizer = torch.optim.AdamW(trained)
    optimizer.step()
    planned = memory(facts_of(hf.config_of(str(tmp_path))), Setup(device="cpu", load_in="32bit", lora_r=2))
    frozen = [weight for weight in model.parameters() if not weight.requires_grad]
    moments = [one for state in optimizer.state.values() for one in state.values()]
    assert planned.base == pytest.approx(bytes_of([*frozen, *model.buffers()]), rel=OFF)
    assert planned.adapter == pytest.approx(bytes_of(trained), rel=OFF)
    assert planned.gradients == pytest.approx(bytes_of(weight.grad for weight in trained), rel=OFF)
    assert planned.optimizer == pytest.approx(bytes_of(moments), rel=OFF)


@pytest.mark.parametrize("name", ["llama", "gpt2", "qwen3_moe"])
def test_what_bitsandbytes_leaves_as_it_is_counts_in_16_bit(name, tmp_path, monkeypatch):
    """The experts of a mixture are one weight, and no linear layer."""
    monkeypatch.setattr(miniature, "SMALL", miniature.SMALL | WIDE | {"n_embd": 512, "n_inner": 1024})
    model = built(AutoConfig.for_model(name), tmp_path, load_in="4bit", precision="bf16")
    facts = facts_of(hf.config_of(str(tmp_path)))
    held = bytes_of(weight for weight in model.parameters() if not weight.requires_grad)
    assert memory(facts, Setup(load_in="4bit")).base == pytest.approx(held, rel=OFF)
    assert (facts.counts.others > facts.counts.linear) == (name == "qwen3_moe")


def test_every_weight_counts_once_and_an_adapter_by_its_targets():
    config = AutoConfig.for_model("llama", **miniature.SMALL | {"num_hidden_layers": 3, "tie_word_embeddings": True})
    tied, apart = facts_of(config), copy.deepcopy(config)
    apart.tie_word_embeddings = False
    assert (tied.counts.output, count(apart).output) == (0, 256 * 64)
    assert parameters(tied) + 256 * 64 == count(apart).all
    assert lora_parameters(tied, 2, ("q_proj", "v_proj")) == 2 * 3 * (64 + 64 + 64 + 64)
    assert lora_parameters(tied, 2, ("self_attn.q_proj",)) == 2 * 3 * (64 + 64)


def test_a_part_of_the_layers_has_its_part_of_the_weights():
    known = Counts(layers=4, linear=400, others=40, table=7, largest=9, adapters={"c_attn": 8})
    half = known.of_layers(2)
    assert (half.linear, half.others, half.table, half.adapters) == (200, 20, 7, {"c_attn": 4})
    facts = facts_of(AutoConfig.for_model("llama", **miniature.SMALL | {"num_hidden_layers": 2}))
    assert counts_of(replace(facts, counts=known)) == half


def test_the_verdict_carries_the_counts_of_the_model_itself_and_not_of_its_miniature():
    found = admit_model.prove(AutoConfig.for_model("gpt2").to_dict())
    assert found.counts and found.counts.all == 124_439_808, found.refused
    assert set(found.counts.adapters) == {"c_attn", "c_proj", "c_fc"}
    assert not Verdict(family="x", refused="no").counts


@pytest.mark.parametrize("checkpointing", [True, False])
def test_experts_with_an_adapter_are_held_once_more(checkpointing):
    """Of one layer where its parts are computed again, else of all layers."""
    shape = {"hidden_size": 128, "moe_intermediate_size": 256, "num_experts": 32, "num_hidden_layers": 3}
    config = AutoConfig.for_model("qwen3_moe", **miniature.SMALL | shape | {"num_experts_per_tok": 2})
    model = AutoModelForCausalLM.from_config(config)
    model = peft.get_peft_model(model, hf._lora(model, ModelSpec(folder="", lora_r=2)))
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    ids = torch.randint(0, 200, (1, 16))
    with LiveBytes() as live:
        model.train()(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    planned = expert_copies(facts_of(config), Setup(device="cpu", load_in="32bit", checkpointing=checkpointing))
    assert planned == pytest.approx(live.peak, rel=0.2)
