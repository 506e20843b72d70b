"""What a plan says of the time that a model takes which is cut."""

from dataclasses import replace
from typing import Any

import pytest

from console import plan_view
from tests.support.plans import GB, VERSIONS, decided, gpu, handed_on
from tests.unit.train.plan.test_decide import CPU, GPU
from tests.unit.train.plan.test_pipeline_placement import card, planned
from train.errors import BadInput
from train.plan.estimate import pipeline_prediction
from train.plan.launch.decide import Decided
from train.plan.placement.fit import Fit, cut_by_speed
from train.plan.placement.pipeline_split import head_cost
from train.plan.settings.read_settings import RunConfig, load_config
from train.plan.speed import step_time
from train.plan.speed.prediction import Figures

PAIR = (card("a", 8), card("b", 8))
TRIO = (*PAIR, card("c", 24))
PIPES = {"pipes": "a+b", "rows_per_step": 32, "micro_batch": 1, "max_seq_length": 1024, "wire": "bf16"}

SMALL = gpu("RTX 3070", 8) | {"memory_bytes": 6 * GB}
IN_4BIT = GPU | {"model llama2-13b-4bit": "h"}


def predicted(found: Fit, speeds: dict[str, float], mbit: float = 1e9, **settings: Any) -> Figures:
    config: RunConfig = load_config({"model": "llama2-13b", **PIPES, **settings})
    found = cut_by_speed(replace(found, link_mbit=mbit), speeds)
    return pipeline_prediction.predict(found, config, speeds, {}).together


def test_two_equal_stages_take_what_one_takes_and_the_bubble():
    found = planned("llama2-13b", *PAIR)
    cost = 40 + head_cost(found.facts)
    told = predicted(found, {"a": 10.0, "b": 10.0})
    assert told.shares == {"a": 32}
    assert told.compute_s == pytest.approx((32 + 1) * cost / 20, rel=0.02)
    assert told.step_s == pytest.approx(told.compute_s + told.sync_s, abs=1e-3)


def test_layers_follow_the_speeds_as_far_as_memory_goes():
    found = planned("llama2-13b", *PAIR)
    shares = {}
    for ratio in (1.0, 0.8, 0.01):
        again = cut_by_speed(found, {"a": 10.0, "b": 10.0 * ratio})
        assert again.cut and again.ok and all(node.memory.total < 8 * GB for node in again.nodes)
        shares[ratio] = again.cut.layers["a"][1]
    assert shares[1.0] < shares[0.8] < shares[0.01] < 39


def test_a_slow_link_holds_a_pipe_up():
    found = planned("llama2-13b", *PAIR)
    fast, slow = (predicted(found, {"a": 40.0, "b": 40.0}, mbit) for mbit in (1000, 20))
    hops_s = step_time.link_seconds(32 * 2 * 1024 * found.facts.hidden, 20)
    assert slow.compute_s > hops_s > fast.compute_s


def test_who_holds_it_whole_takes_rows_beside_a_pipe_by_its_speed():
    found = planned("llama2-13b", *TRIO)
    assert found.pipes == "a+b,c"
    told = predicted(found, {"a": 20.0, "b": 20.0, "c": 3.0}, pipes="a+b,c", rows_per_step=64)
    pipe, alone = told.shares["a"], told.shares["c"]
    assert pipe + alone == 64 and alone > 2.5 * pipe  # 3 rows/s beside about 0.95
    assert told.compute_s == pytest.approx(alone / 3.0, rel=0.1)
    assert predicted(replace(found, pipes="a+b"), {"a": 20.0, "b": 20.0, "c": 3.0}, rows_per_step=64) == told, "unnamed"


def no_hub(_: Any) -> Any:
    raise BadInput("the hub cannot be reached")


def launched(values: dict[str, Any], *looks: dict[str, Any], versions: Any = IN_4BIT, **known: Any) -> Decided:
    return decided({"run": "qa", **values}, *looks, versions=versions, files=no_hub, **known)


def test_the_plan_of_a_launch_says_it_and_how_to_measure_it():
    values = {"model": "llama2-13b", "rows_per_step": 32, "max_steps": 100, "max_seq_length": 1024, "pipes": "a+b"}
    first = launched(values, SMALL, SMALL)
    assert first.settings["pipes"] == "a+b" and not first.prediction
    told = handed_on(first)
    assert told.calibrate[:2] == ["calibrate", "--json"]
    parts = [node.calibrate for node in told.nodes]
    assert all("--pipes=a+b" in words and "--micro-batch=2" in words for words in parts)
    assert [word for words in parts for word in words if "part" in word] == ["--part=0-19", "--part=19-40"]

    measured = {"a": {"rows_per_s": 10.0, "fixed_s": 0.1}, "b": {"rows_per_s": 5.0, "fixed_s": 0.3}}
    then = launched(values, SMALL, SMALL, calibrated=measured)
    layers = then.fit.cut.layers if then.fit.cut else {}
    assert layers["a"][1] > 20, "the faster one has more"
    assert then.prediction and then.prediction.together.compute_s == pytest.approx(
        pipeline_prediction.predict(then.fit, then.request.config, {"a": 10.0, "b": 5.0}, {}).together.compute_s + 0.3
    )
    text = "\n".join(plan_view.lines(then))
    assert f"predicted {then.prediction.together.step_s:.2f} s a step (measured in a calibration)" in text

    run = {"launched": {"all": first.settings}}
    before = SMALL | {"measured": [run | {"run": "earlier", "speeds": {}, "layer_speeds": {"a": 10.0, "b": 5.0}}]}
    again = launched(values, before, before)
    assert again.speeds.rows_per_s == {"a": 10.0, "b": 5.0} and again.speeds.why == "measured in earlier"
    whole = SMALL | {"measured": [run | {"run": "whole", "speeds": {"a": 1.0, "b": 1.0}}]}
    assert not launched(values, whole, whole).speeds.rows_per_s


def test_a_machine_that_is_cut_over_its_own_cards_needs_no_link_and_measures_one_of_them():
    two = SMALL | {"cards": SMALL["cards"] * 2}
    known = {"calibrated": {"a": {"rows_per_s": 10.0, "fixed_s": 0.0}}}
    values = {"model": "llama2-13b", "pipes": "a", "max_seq_length": 1024}
    fast, slow = (launched(values, two, proof_mbit=mbit, **known) for mbit in (1000, 1))
    assert fast.speeds.rows_per_s == {"a": 10.0}, "of a stage, not of both"
    assert fast.prediction and slow.prediction
    assert fast.prediction.together.compute_s == slow.prediction.together.compute_s > 0
    [node] = handed_on(fast).nodes
    assert "--part=0-20" in node.calibrate


@pytest.mark.parametrize(
    ("model", "mbit", "asked", "inventory", "pipes"),
    [
        ("tinyllama", 1000, {}, {}, "a+b"),  # who streams computes forward twice, who is cut on a processor does not
        ("tinyllama", 1, {}, {}, "off"),
        ("qwen2.5-32b", 1000, {}, {}, "off"),  # a card computes forward twice anyway, and waits for nobody
        ("tinyllama", 1000, {"pipes": "off"}, {}, "off"),
        ("tinyllama", 1000, {"weights": "stream"}, {}, "off"),
        ("tinyllama", 1000, {}, {"a": "stream", "b": "stream"}, "off"),
    ],
)
def test_a_pipe_takes_the_place_of_streaming_where_it_is_faster(model, mbit, asked, inventory, pipes):
    small, versions = CPU | {"memory_bytes": 11 * GB // 2}, VERSIONS | {"model tinyllama": "h"}
    if model == "qwen2.5-32b":
        small, versions = gpu("RTX 3070", 8), GPU | {"model qwen2.5-32b-4bit": "h"}
    values = {"model": model, "rows_per_step": 64, "lora_r": 4} | asked
    sure = {"versions": versions, "proof_mbit": mbit, "weights": inventory}

    assert launched(values, small, small, **sure).settings["pipes"] == "off", "without speeds it streams"
    measured = {name: {"rows_per_s": 0.05, "fixed_s": 0.1} for name in "ab"}
    found = launched(values, small, small, **sure, calibrated=measured)
    assert found.settings["pipes"] == pipes
    text = "\n".join(plan_view.lines(found))
    assert ("where streaming the base would take" in text) == (pipes != "off")
    assert found.prediction and found.prediction.together.step_s > 0
