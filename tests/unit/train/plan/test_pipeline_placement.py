"""Who holds a model together: what the plan decides, with its reason."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.too_big import MODELS, facts_of
from train.errors import BadInput
from train.plan.machines.nodes import Device
from train.plan.model.memory import GIB, USABLE
from train.plan.placement.first_way_that_fits import choose, choose_on_devices
from train.plan.placement.fit import Fit, placed, to_json
from train.plan.placement.pipeline_placement import bubbles, fewest
from train.plan.placement.pipeline_split import Room, stage_memory
from train.plan.settings.pipes import parse_pipes
from train.plan.settings.read_settings import load_config


def card(name: str, gb: float, main_gb: float = 0.0) -> Device:
    return Device(name, "cuda", int(gb * GIB), main_bytes=int(main_gb * GIB))


def planned(model: str, *devices: Device, on_disk: str = "", **settings: object) -> Fit:
    """`on_disk`: else a base in 4 bit is quantised here, and cannot be streamed from its files."""
    config, facts = load_config({"model": model, "max_seq_length": 1024, **settings}), facts_of(model)
    facts = replace(facts, on_disk=on_disk)
    return choose(config, devices, facts, model=model, mbit=1000)


@pytest.mark.parametrize(
    ("nodes", "pipes", "why"),
    [
        ((card("a", 24), card("b", 24)), "off", ""),
        ((card("a", 24), card("b", 8, 64)), "off", ""),  # b streams
        ((card("a", 8), card("b", 8)), "a+b", "a and b can neither hold the base nor stream it"),
        ((card("a", 24), card("b", 8), card("c", 8)), "b+c,a", "b and c can neither hold the base nor stream it"),
        ((card("a", 8, 64), card("b", 8), card("c", 8)), "a+b+c", "b and c can neither hold the base nor stream it"),
        ([card(name, 8) for name in "abcd"], "a+b,c+d", "a, b, c and d can neither hold the base nor stream it"),
        ((card("a", 24), card("b", 8)), "off", ""),  # one alone makes no pipe
        ((card("a", 4), card("b", 3)), "off", ""),
    ],
)
def test_who_can_hold_or_stream_it_does_and_the_others_share_it(nodes, pipes, why):
    found = planned("llama2-13b", *nodes)
    assert found.pipes == pipes
    assert (found.cut.why if found.cut else "") == why


def test_the_cards_of_one_machine_are_stages_one_behind_the_other():
    two = replace(card("a", 8), processes=2)
    alone = planned("llama2-13b", two)
    assert alone.pipes == "a" and alone.ok and alone.cut and alone.cut.why
    assert alone.cut.layers == {"a": (0, 40)} and len(alone.cut.counts["a",]) == 2
    assert alone.cut.memory["a"].total <= USABLE * 8 * GIB and alone.cut.room.holds["a"] < 40
    beside = planned("llama2-13b", two, card("b", 8), pipes="a+b")
    assert beside.cut and [len(counts) for counts in beside.cut.counts.values()] == [3]
    assert beside.cut.layers["a"][1] == sum(beside.cut.counts["a", "b"][:2]) == beside.cut.layers["b"][0]
    ends = {0: {"first": True, "last": False}, 1: {"first": False, "last": False}}
    parts = [
        stage_memory(beside.facts, beside.setup, beside.cut.counts["a", "b"][at], **ends[at], ahead=2 - at).total
        for at in ends
    ]
    assert beside.cut.memory["a"].total == max(parts) != min(parts)
    assert planned("llama2-13b", card("a", 8)).pipes == "off"
    whole = replace(card("c", 24), processes=2)
    assert planned("llama2-13b", two, card("b", 24), whole).pipes == "a,b", "c has a worker for each of its cards"
    held = planned("llama2-13b", replace(card("a", 24), processes=2), card("b", 24))
    assert held.pipes == "off", "each of them holds it: nobody waits for anybody"


def test_the_roomiest_come_first_and_who_is_left_over_joins():
    room = Room(8, 10**9, {"a": 3, "b": 5, "c": 3, "d": 5})
    assert fewest("abcd", room, lambda some: not room.missing(some)) == [("a", "b", "c", "d")]
    more = Room(8, 10**9, {"a": 3, "b": 5, "c": 3, "d": 5, "e": 8, "f": 5, "g": 5})
    assert fewest("abcdfg", more, lambda some: not more.missing(some)) == [("b", "d"), ("a", "c", "f", "g")]


def test_a_stage_keeps_the_micro_batches_that_are_in_the_stages_behind_it():
    found = planned("llama2-13b", *(card(name, 6) for name in "abc"))
    assert found.cut and found.pipes == "a+b+c"
    layers = {name: last - first for name, (first, last) in found.cut.layers.items()}
    kept = [found.cut.memory[name].activations / layers[name] for name in "abc"]
    assert kept[0] > kept[1] > kept[2]


def test_too_few_rows_for_each_pipe_are_told():
    assert bubbles("a+b,c+d", 32) == []
    first, second = bubbles("a+b,c+d", 8)
    assert first == "a+b wait for one another 20% of a step with 4 rows in it; rows_per_step=32 would make it 6%"
    assert second.startswith("c+d")


def test_three_cards_hold_a_32b_that_none_can():
    found = planned("qwen2.5-32b", card("desktop", 16), card("tower", 8), card("laptop", 8))
    assert found.pipes == "desktop+tower+laptop" and found.ok
    assert found.cut and found.cut.layers["desktop"][1] > 32
    assert found.decisions.backend == "hf"


def test_what_is_missing_is_named():
    found = planned("llama2-70b", card("a", 8), card("b", 8))
    assert not found.ok and found.pipes == "off"
    assert found.lacking.startswith("together they hold ") and found.lacking.endswith(" GB are missing")
    assert found.lacking in to_json(found)["failures"]


def test_what_is_asked_for_by_hand_is_checked():
    with pytest.raises(BadInput, match="no node is called 'c'"):
        planned("llama2-13b", card("a", 8), card("b", 8), pipes="a+c")
    found = planned("llama2-70b", card("a", 8), card("b", 8), card("c", 80), pipes="a+b")
    assert not found.ok and "are missing, waiting for c" in found.lacking
    assert planned("llama2-13b", card("a", 24), card("b", 8, 64), pipes="a+b").cut


@pytest.mark.parametrize("more", [{"weights": "gpu"}, {"sync": "local"}, {"backend": "unsloth"}, {"load_in": "8bit"}])
def test_with_what_cannot_be_cut_nothing_is(more):
    assert planned("llama2-13b", card("a", 8), card("b", 8), **more).pipes == "off"


@given(st.sampled_from(MODELS), st.lists(st.integers(4, 48), min_size=1, max_size=5), st.integers(0, 64))
@example("qwen2.5-32b", [4, 22, 4], 0)
def test_every_stage_has_the_memory_for_its_layers(model, cards, main):
    devices = [card(f"n{at}", gb, main if at % 2 else 0) for at, gb in enumerate(cards)]
    found = planned(model, *devices)
    if not found.cut:
        return
    by_name = {device.name: device for device in devices}
    for group in (group for group in parse_pipes(found.pipes) if len(group) > 1):
        ends = [found.cut.layers[name] for name in group]
        assert ends[0][0] == 0 and ends[-1][1] == facts_of(model).layers
        assert all(one[1] == other[0] for one, other in itertools.pairwise(ends))
        assert found.cut.room.of(group) >= found.cut.room.layers
        for name in group:
            assert found.cut.memory[name].total <= USABLE * by_name[name].memory_bytes


def test_who_holds_a_part_of_the_model_streams_nothing():
    devices, facts = (card("a", 8, 64), card("b", 8, 64)), facts_of("qwen2.5-32b")
    config = load_config({"model": "qwen2.5-32b", "pipes": "a+b"})
    whole = config.held(pipes="off")
    alone, _ = placed(whole, choose_on_devices(whole, devices, facts), 0)
    part, why = placed(config, choose_on_devices(config, devices, facts), 0)
    assert alone.holding.weights == "stream" and part.holding.weights == "gpu" and not why


def test_a_run_that_finds_its_devices_is_cut_by_a_setting_alone():
    devices, config = (card("a", 8), card("b", 8)), load_config({"model": "llama2-13b", "max_seq_length": 1024})
    assert planned("llama2-13b", *devices).pipes == "a+b"
    found = choose_on_devices(config, devices, replace(facts_of("llama2-13b"), on_disk=""))
    assert found.pipes == "off" and not found.ok


def test_unsloth_that_was_asked_for_holds_the_base_or_nothing():
    assert planned("llama2-13b", card("a", 8, 64)).ok
    found = planned("llama2-13b", card("a", 8, 64), backend="unsloth")
    assert not found.ok and found.decisions.backend == "unsloth" and found.nodes[0].place.weights == "gpu"
