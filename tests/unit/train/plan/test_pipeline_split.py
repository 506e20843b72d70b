"""Who computes which layers, and who works together: pure functions."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from train.errors import BadInput
from train.plan.model.catalogue import model_facts, resolve_model
from train.plan.model.memory import Setup
from train.plan.placement.pipeline_split import Room, cut_layers, regroup, stage_memory, stage_seconds, why_too_small
from train.plan.settings.pipes import check_names, parse_pipes

SPEED = st.floats(0.1, 100)
STAGE = st.tuples(SPEED, st.integers(0, 9))


@given(st.integers(1, 12), st.lists(STAGE, min_size=1, max_size=4), st.floats(0, 4))
def test_no_other_cut_that_fits_is_faster(layers, stages, head):
    speeds, most = [list(part) for part in zip(*stages, strict=True)]
    found = cut_layers(layers, speeds, most, head_layers=head)
    able = [counts for counts in product(*(range(1, room + 1) for room in most)) if sum(counts) == layers]
    assert (found is None) == (not able)
    if found is None:
        return
    assert tuple(found) in able
    best = min(max(stage_seconds(counts, speeds, head)) for counts in able)
    assert max(stage_seconds(found, speeds, head)) == pytest.approx(best)


NAMES = ("a", "b", "c", "d")
PRESENT = st.lists(st.sampled_from(NAMES), unique=True, min_size=1)


@given(PRESENT, st.permutations(NAMES), st.lists(st.booleans(), min_size=3, max_size=3), st.data())
def test_whoever_is_left_trains_the_whole_model_if_it_can(present, order, joins, data):
    asked = [[order[0]]]
    for name, joined in zip(order[1:], joins, strict=True):
        asked[-1].append(name) if joined else asked.append([name])
    asked = [tuple(group) for group in asked]
    room = Room(10, 1, {name: data.draw(st.integers(1, 12)) for name in NAMES})
    groups = regroup(asked, present, room)
    found = [name for group in groups for name in group]
    if not groups:
        assert room.of(present) < 10 and why_too_small(present, [], room)
        return
    assert sorted(found) == sorted(present)
    assert all(not room.missing(group) for group in groups)
    if len(present) == len(NAMES) and not any(room.missing(group) for group in asked):
        assert groups == asked


def test_a_pipe_that_lost_its_last_stage_takes_a_whole_machine_in():
    room = Room(32, 10**9, {"big": 32, "a": 20, "b": 12})
    asked = parse_pipes("a+b,big")
    assert regroup(asked, ["big", "a", "b"], room) == [("a", "b"), ("big",)]
    assert regroup(asked, ["big", "a"], room) == [("a", "big")]
    assert regroup(asked, ["a", "b"], room) == [("a", "b")]
    assert regroup(asked, ["big"], room) == [("big",)]


def test_too_little_memory_is_named_with_who_would_do():
    room = Room(32, 10**9, {"a": 16, "b": 12, "c": 8, "d": 20})
    asked = parse_pipes("a+b+c")
    assert regroup(asked, ["a", "c"], room) == []
    words = why_too_small(["a", "c"], ["b", "d"], room)
    assert words == "a and c hold 24 of 32 layers: 8.0 GB are missing, waiting for b or d"
    assert "waiting for b and c" in why_too_small(["a"], ["b", "c"], room)
    assert why_too_small(["a", "d"], [], room) == ""


@pytest.mark.parametrize("text", ["a+", "a+a", "a,b,a", "+", "a,,b"])
def test_a_list_that_is_none_is_refused(text):
    with pytest.raises(BadInput, match="is no list of nodes"):
        parse_pipes(text)


def test_an_unknown_node_is_named_with_the_nearest():
    with pytest.raises(BadInput, match=r"no node is called 'desktp'.*desktop"):
        check_names(parse_pipes("desktp+laptop"), ["desktop", "laptop"])


def facts(name):
    model = resolve_model(name)
    return model.facts or model_facts(model)


def test_parts_of_a_model_take_what_the_whole_takes():
    """But for what each machine needs for itself."""
    whole, setup = facts("qwen2.5-32b"), Setup(row_length=1024)
    halves = [stage_memory(whole, setup, 32, first=first, last=not first, ahead=0) for first in (True, False)]
    both = stage_memory(whole, setup, 64, first=True, last=True, ahead=0)
    assert sum(half.base for half in halves) == pytest.approx(both.base, rel=1e-3)
    assert [half.logits > 0 for half in halves] == [False, True]
