"""Where a node has the frozen base while it trains."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.too_big import MODELS, facts_of
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import resolve_model
from train.plan.model.memory import GIB, Setup, fits, layer_bytes, memory
from train.plan.placement.first_way_that_fits import choose, choose_on_devices
from train.plan.placement.fit import placed
from train.plan.placement.hold_or_stream import Place, lacks, place
from train.plan.settings.read_settings import load_config

CPU = Device("a", "cpu", 48 * GIB)
IN_4BIT = Setup(load_in="4bit", row_length=512)


def card(gb: float, main_gb: float = 64, **more: Any) -> Device:
    return Device("a", "cuda", int(gb * GIB), main_bytes=int(main_gb * GIB), **more)


FREE = ", of which 8 % stay free"


@pytest.mark.parametrize(
    ("node", "wanted", "weights", "why"),
    [
        (card(24), "auto", "gpu", ""),
        (card(8), "auto", "stream", f"8.9 GB do not fit its 8 GB{FREE}; 6.1 GB of layers come from main memory"),
        (card(8, 7), "auto", "stream", f"8.9 GB do not fit its 8 GB{FREE}; 6.1 GB of layers come from its files"),
        (card(8), "gpu", "gpu", ""),
        (card(24), "stream", "stream", "as set; 6.1 GB of layers come from main memory"),
        (card(24, weights="stream"), "gpu", "stream", "as set; 6.1 GB of layers come from main memory"),
        (card(8, weights="gpu"), "stream", "gpu", ""),
        (card(2), "auto", "gpu", ""),  # not even streamed
        (replace(CPU, memory_bytes=256 * GIB), "auto", "gpu", ""),
        (CPU, "auto", "stream", f"50.6 GB do not fit its 48 GB{FREE}; 47.3 GB of layers come from its files"),
    ],
)
def test_what_fits_is_held_and_what_does_not_is_streamed(node, wanted, weights, why):
    found = place(wanted, facts_of("llama2-13b"), IN_4BIT, node)
    assert (found.weights, found.why) == (weights, why)


def test_what_is_quantised_here_needs_main_memory_and_the_missing_part_is_named():
    """Its files have it in 16 bit: from there it would have to be quantised again in each step."""
    facts = replace(facts_of("llama2-13b"), on_disk="")
    found = place("auto", facts, IN_4BIT, card(8, 6))
    assert found.weights == "gpu" and lacks(found) == "; to stream it, 1.6 GB more main memory are needed"
    assert place("auto", facts, IN_4BIT, card(8, 9)).weights == "stream"
    assert lacks(Place("gpu")) == ""


def test_fewer_rows_at_a_time_come_before_streaming():
    many = replace(IN_4BIT, micro_batch=16)
    assert place("auto", facts_of("llama2-13b"), many, card(12)).weights == "gpu"


@pytest.mark.parametrize(("load_in", "full"), [("8bit", False), ("4bit", True)])
def test_what_cannot_be_streamed_is_held(load_in, full):
    setup = replace(IN_4BIT, load_in=load_in, full=full)
    assert place("auto", facts_of("llama2-13b"), setup, card(8)).weights == "gpu"


@given(st.sampled_from(MODELS), st.integers(2, 80), st.integers(1, 256), st.sampled_from([256, 1024, 4096]))
def test_who_streams_has_the_room_for_it(name, gb, main_gb, length):
    facts, node, setup = facts_of(name), card(gb, main_gb), replace(IN_4BIT, row_length=length)
    found = place("auto", facts, setup, node)
    if found.weights == "stream":
        assert not fits(facts, setup, node.memory_bytes)
        assert fits(facts, replace(setup, weights="stream"), node.memory_bytes)
        assert "its files" in found.why or layer_bytes(facts, setup) < node.main_bytes
    assert memory(facts, replace(setup, weights="stream")).base < memory(facts, setup).base / 4


def test_one_that_streams_gives_all_the_backend_that_can():
    config, facts = load_config({"model": "llama2-13b"}), facts_of("llama2-13b")
    both = [card(24), replace(card(8), name="b")]
    found = choose(config, both, facts).decisions
    assert found.backend == "hf" and "backend hf: unsloth cannot stream, and b must" in found.reasons
    assert choose(config, both[:1], facts).decisions.backend == "unsloth"
    assert choose(replace(config, weights="gpu"), both, facts).decisions.backend == "unsloth"


def test_recipes_without_a_frozen_base_have_nothing_to_place():
    config = load_config({"recipe": "pretrain"})
    found = choose_on_devices(config, [card(8)], resolve_model("tiny").facts)
    assert placed(config, found, 0) == (config, [])
