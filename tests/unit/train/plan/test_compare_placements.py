"""The ways to train a large model, beside one another."""

import pytest

from tests.support.too_big import facts_of
from train.errors import BadInput
from train.plan.estimate.compare_placements import compared
from train.plan.launch.plan_cards import what_if
from train.plan.machines.nodes import Device
from train.plan.model.memory import GIB
from train.plan.placement.first_way_that_fits import case_of
from train.plan.settings.read_settings import load_config

TRIO = [Device(name, "cuda", gb * GIB, main_bytes=64 * GIB) for name, gb in (("a", 16), ("b", 8), ("c", 8))]
TFLOPS = {"a": 32.0, "b": 17.0, "c": 17.0}


def found(model: str = "qwen2.5-32b", mbit: float = 1000, rows: int = 32, **tflops: float):
    config = load_config({"model": model, "max_seq_length": 1024, "rows_per_step": rows})
    return {way.name: way for way in compared(case_of(config, TRIO, facts_of(model), mbit=mbit), tflops)}


def test_a_32b_on_16_and_8_and_8_gb_is_not_held_but_streamed_or_cut():
    options = found(**TFLOPS)
    assert [name for name, way in options.items() if way.ok] == ["streamed", "cut"]
    gb = [float(options["cut"].cells[name].partition(" ")[0]) for name in "ab"]
    assert gb[0] > 1.5 * gb[1]
    # as the prototype's arithmetic has it, on the same guesses: 333 and 305
    assert options["streamed"].tokens_per_s == pytest.approx(333, rel=0.03)
    assert options["cut"].tokens_per_s == pytest.approx(305, rel=0.05)
    assert round(100 * options["cut"].bubble) == 6
    assert all(way.tokens_per_s is None for way in found().values()), "no speed is assumed"


def test_a_slow_link_makes_the_pipe_slower_than_what_crosses_it_once():
    fast, slow = found(**TFLOPS), found(mbit=20, **TFLOPS)
    assert slow["cut"].link_s == pytest.approx(50 * fast["cut"].link_s)
    for way in ("streamed", "cut"):
        assert (slow[way].tokens_per_s or 0) < (fast[way].tokens_per_s or 0) / 2


def test_a_processor_sends_hidden_states_of_twice_the_size_and_two_neighbours_share_a_link():
    config = load_config({"model": "llama2-13b", "max_seq_length": 1024, "rows_per_step": 32, "wire": "fp32"})

    def link_s(*kinds):
        nodes = [Device(f"{kind}{at}", kind, 1 << 40, main_bytes=1 << 40) for at, kind in enumerate(kinds)]
        found = compared(case_of(config, nodes, facts_of("llama2-13b"), mbit=1000), {})
        alone, cut = (next(way for way in found if way.name == name).link_s for name in ("held", "cut"))
        return cut - alone

    assert link_s("cuda", "cpu") == pytest.approx(2 * link_s("cuda", "cuda"), rel=1e-4)
    assert link_s("cuda", "cuda", "cuda") == pytest.approx(2 * link_s("cuda", "cuda"), rel=1e-4)
    assert link_s("cuda", "cuda", "cuda") == pytest.approx(link_s(*["cuda"] * 4), rel=1e-4)


def test_rows_that_go_through_together_make_machines_wait_longer_for_one_another():
    values = {"model": "llama2-13b", "max_seq_length": 1024, "rows_per_step": 32}
    each = {}
    for rows in (1, 4, 64):
        config = load_config({**values, "micro_batch": rows})
        each[rows] = compared(case_of(config, TRIO, facts_of("llama2-13b"), mbit=1e6), TFLOPS)[-1]
    assert [round(100 * way.bubble) for way in each.values()] == [6, 20, 67]
    assert all(way.tokens_per_s for way in (each[1], each[4]))
    assert (each[1].tokens_per_s or 0) > 1.1 * (each[4].tokens_per_s or 0)


def test_a_machine_that_is_missing_among_the_speeds_is_named():
    with pytest.raises(BadInput, match="tflops: tower: a number is missing"):
        what_if("desktop=16,tower=8", {"model": "qwen2.5-32b", "tflops": "desktop=32"})
