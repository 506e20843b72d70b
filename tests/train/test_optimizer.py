"""A step in main memory: the same numbers, and nothing else of the weights is touched."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from transformers import Trainer

from tests.train import families
from train.engine.make_optimizer import AdamWOnCpu, make_optimizer, why_on_cpu
from train.engine.micro_batch_search import whole_step
from train.errors import BadInput
from train.models import hf
from train.models.backends import ModelSpec
from train.models.device import cards_alike
from train.models.optimizer_step import optimizer_state, set_optimizer_state
from train.models.weights import trained_weights
from train.plan.machines.nodes import Device
from train.plan.placement.first_way_that_fits import choose_on_devices
from train.plan.settings.read_settings import SftConfig, load_config
from train.recipes.sft import recipe as sft

GPU, CPU = Device("a", "cuda:0", 1 << 34), Device("b", "cpu", 1 << 34)


def test_gpus_and_cpus_together_step_on_the_processor():
    assert why_on_cpu([GPU, CPU]) == "optimizer on the processor: graphics cards and processors train together"
    assert not why_on_cpu([GPU, GPU]) and not why_on_cpu([CPU])
    weights = [nn.Parameter(torch.zeros(2))]
    assert type(make_optimizer(SftConfig(), weights, on_cpu=True)) is AdamWOnCpu
    assert type(make_optimizer(SftConfig(), weights)) is torch.optim.AdamW
    with pytest.raises(BadInput, match="adamw8bit needs a GPU, which b has not"):
        choose_on_devices(SftConfig(optimizer="adamw8bit"), [GPU, CPU], None)


def card(capability, node="a", alike=()):
    return replace(GPU, name=node, capability=capability, alike=alike)


def test_unlike_cards_step_on_the_processor_until_they_are_known_to_hold_the_same(monkeypatch):
    """If one bit of AdamW differs between two kinds, a run ends at its first proof."""
    old, new = card("8.6"), card("12.0", "b")
    assert why_on_cpu([old, new]) == (
        "optimizer on the processor: that cards of 8.6 and 12.0 hold the same is not proven (docs/cards.md)"
    )
    assert not why_on_cpu([old, card("8.6", "b")]) and not why_on_cpu([old, new], "muon")
    known = replace(new, alike=("8.6+12.0", "8.6+8.9"))
    assert why_on_cpu([old, known]) == ""
    assert why_on_cpu([old, known, card("7.5", "c")]) and why_on_cpu([old, known, CPU])
    monkeypatch.setenv("MOTLEY_CARDS_ALIKE", "12.0+8.6, 8.6+8.9")
    assert cards_alike() == ("8.6+12.0", "8.6+8.9")


def test_of_all_weights_those_shrink_that_transformers_shrinks(tmp_path):
    base = families.make("qwen2", tmp_path)  # it has biases
    model = hf.build(ModelSpec(folder=str(base), method="full"))
    named = trained_weights(model)
    shrunk, kept = sft.optimized(load_config({"model": str(base), "method": "full", "weight_decay": 0.1}), named)
    theirs = {id(named[name]) for name in Trainer.get_decay_parameter_names(None, model)}
    assert {id(p) for p in shrunk["params"]} == theirs and shrunk["weight_decay"] == 0.1
    assert len(kept["params"]) + len(theirs) == len(named) and kept["weight_decay"] == 0


def trained(kind, steps=5):
    torch.manual_seed(1)
    weights = [nn.Parameter(torch.randn(64, 8)), nn.Parameter(torch.randn(8))]
    memory = [p.data_ptr() for p in weights]
    optimizer = kind(weights, lr=1e-2, weight_decay=0.1)
    for _ in range(steps):
        for p in weights:
            p.grad = torch.randn_like(p)
        gradients = [p.grad for p in weights]
        optimizer.step()
        assert all(p.grad is gradient for p, gradient in zip(weights, gradients, strict=True))
    assert [p.data_ptr() for p in weights] == memory, "an exchange may hold on to where they lie"
    return weights, optimizer


def test_its_numbers_are_those_of_adamw_bit_for_bit():
    (ours, kept), (theirs, reference) = trained(AdamWOnCpu), trained(torch.optim.AdamW)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    for name, tensor in optimizer_state(dict(zip("ab", ours, strict=True)), kept)[0].items():
        assert torch.equal(tensor, optimizer_state(dict(zip("ab", theirs, strict=True)), reference)[0][name])


def test_what_a_checkpoint_brings_lies_where_the_step_is_computed():
    """The weights' own device would be the GPU, as far as a machine without one can show: here it is `meta`."""
    weights = {"a": nn.Parameter(torch.empty(4, device="meta"))}
    optimizer = AdamWOnCpu(weights.values(), lr=1e-2)
    set_optimizer_state(weights, optimizer, {"a|exp_avg": torch.ones(4)}, {})
    assert optimizer.state[weights["a"]]["exp_avg"].device.type == "cpu"


def test_a_trial_makes_a_whole_step_and_leaves_nothing_of_it():
    model = nn.Linear(4, 1)
    weights, seen = list(model.parameters()), []
    optimizer = torch.optim.AdamW(weights, lr=0.1)
    before = [p.detach().clone() for p in weights]
    step, held = optimizer.step, []

    def seen_step():
        step()
        seen.extend([*(p.detach().clone() for p in weights), len(optimizer.state)])

    optimizer.step = seen_step

    def loss(batch):
        held.append([(p.grad is not None, len(optimizer.state.get(p, {}))) for p in weights])
        return model(batch["x"]).sum()

    whole_step(loss, {"x": torch.ones(2, 4)}, weights, optimizer)
    assert held == [[(True, 3), (True, 3)]], "a later step has gradients and moments there from its beginning"
    assert seen[-1] == 2 and not torch.equal(seen[-3], before[0]), "no step was made"
    assert all(torch.equal(a, b) and a.grad is None for a, b in zip(weights, before, strict=True))
    assert not optimizer.state
