"""The settings of a sweep: what is tried, checked by the rules of the recipe whose trials it runs."""

import json
from dataclasses import replace
from typing import Any

import pytest

from console import plan_view, render
from tests.support.plans import decided, files_of, handed_on, look
from train.errors import BadInput
from train.plan.launch.base_model import BaseFacts
from train.plan.launch.decide import too_large_for_each
from train.plan.machines.nodes import Device
from train.plan.model.catalogue import resolve_model
from train.plan.model.sources import BaseModel
from train.plan.settings import request
from train.plan.settings.ranges import Choice, Range, is_search
from train.plan.settings.read_settings import SftConfig, load_config

SEARCH = "learning_rate=1e-5..1e-3:log lora_r=8,16,32"


def sweep(search: str = SEARCH, **more: Any) -> Any:
    return load_config({"recipe": "sweep", "model": "tiny", "search": search, **more})


def test_a_trial_that_fits_no_machine_is_refused_where_all_trials_are_known():
    """It would be waited for: each machine leaves it to the others."""
    model = resolve_model("qwen3-8b")
    base = BaseFacts(model=BaseModel.of(model), shape=model.facts)
    cards = [Device(name, "cuda:0", gb << 30, bf16=True) for name, gb in (("big", 24), ("small", 12))]
    grid = sweep("lora_r=8,4096", model="qwen3-8b", grid=True, load_in="16bit", weights="gpu")
    assert too_large_for_each(grid, base, cards) == [
        "no machine has the memory for a trial with lora_r=4096\nfix: leave that out, or --set load_in=4bit"
    ]
    assert too_large_for_each(replace(grid, search="lora_r=8,16"), base, cards) == []
    assert too_large_for_each(replace(grid, grid=False, trials=2, search="lora_r=8..4096"), base, cards) == []


def test_a_range_has_the_type_of_its_setting():
    found = sweep("learning_rate=1e-5..1e-3:log lora_r=4..32 lora_alpha=8..16 schedule=linear,cosine dora=true,false")
    assert found.searched == [
        Range(name="learning_rate", low=1e-5, high=1e-3, log=True),
        Range(name="lora_r", low=4, high=32, whole=True),
        Range(name="lora_alpha", low=8, high=16, whole=True),
        Choice(name="schedule", values=("linear", "cosine")),
        Choice(name="dora", values=(True, False)),
    ]
    assert sweep("lora_targets=all-linear|q_proj,v_proj").searched[0].ends == ("all-linear", "q_proj,v_proj")


def test_a_number_that_is_tried_is_short_and_within_its_ends():
    rate, rank = sweep("learning_rate=1.23456e-5..1e-3:log lora_r=4..32").searched
    assert (rate.near(0.000317734), rate.near(1.2345601e-5), rank.near(7.6)) == (0.000318, 1.23456e-5, 8)
    assert rate.share(1e-3) == 1 and abs(sweep("learning_rate=1e-4..1e-2:log").searched[0].share(1e-3) - 0.5) < 1e-9
    assert sweep("lora_r=8,16,32").searched[0].share(16) == 0.5


@pytest.mark.parametrize(
    ("search", "words"),
    [
        ("learning_rate=1e-5..inf", "'inf' is not a number"),
        ("learning_rate=0..1e-3:log", "a range with :log begins above 0"),
        ("learning_rate=1e-5..1e-3:lgo", "is not LOW..HIGH or LOW..HIGH:log"),
        ("learning_rate=1e-5...1e-3", "is not LOW..HIGH or LOW..HIGH:log"),
        ("max_steps=..50", "max_steps: '..50' has an end without a number"),
        ("epochs=1..none", "epochs: '1..none' has an end without a number"),
        ("learning_rate=-1..1e-3", "learning_rate and timeout_s must be above 0"),
        ("lora_r=4.5..8", "lora_r: '4.5' is not a whole number"),
        ("lora_r=0,8", "lora_r: 0 is below 1"),
        ("lora_r=8", "'8' is one value"),
        ("lora_r=8,8", "names a value twice"),
        ("lora_r=8,16 lora_r=4..8", "lora_r is named twice"),
        ("lora_r", "'lora_r' is not NAME=LOW..HIGH"),
        ("lora_rr=8,16", "there is no setting 'lora_rr', did you mean 'lora_r'?"),
        ("schedule=cosin,linear", "did you mean 'cosine'?"),
        ("schedule=a..b", "schedule is no number, and 'a..b' is a range\nlist its values: schedule=A,B"),
        ("max_seq_length=128,256", "max_seq_length cannot be tried in one sweep: the rows are made once"),
        ("dataset=a|b", "dataset cannot be tried in one sweep"),
        ("wire=fp32,bf16", "wire cannot be tried in one sweep: trials share it"),
        ("'lora_r=8", "No closing quotation"),
    ],
)
def test_what_is_no_range_is_refused_in_a_sentence(search, words):
    with pytest.raises(BadInput) as refused:
        sweep(search)
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grid": "true", "search": "lora_r=4..32"}, "grid: lora_r is a range, which has no end of values"),
        ({"trials": "2000"}, "2000 trials are more than 1000"),
        ({"trains": "./mine.py"}, "trains: a sweep knows the recipes of Motley"),
        ({"pipes": "a+b"}, "pipes: a+b is for machines that train together"),
        ({"shares": "2,1"}, "is for machines that train together"),
        ({"sync": "local"}, "sync: local is for machines that train together"),
        ({"eval_fraction": "0"}, "eval_fraction: trials are compared by held-out rows"),
        ({"trains": "preference", "search": "beta=0.1,0.2"}, "beta cannot be tried in one sweep: it changes"),
        ({"group": "4"}, "group: this belongs to recipe=grpo"),
    ],
)
def test_what_does_not_go_with_a_sweep_is_refused(values, words):
    with pytest.raises(BadInput) as refused:
        request.read({"recipe": "sweep", "model": "tiny", "search": SEARCH} | values)
    assert words in str(refused.value)


@pytest.mark.parametrize(("recipe", "needs"), [("sweep", "search"), ("grpo", "rewards")])
def test_a_launch_must_name_what_its_recipe_needs(recipe, needs):
    with pytest.raises(BadInput, match=f"{needs}: a value is missing"):
        request.read({"recipe": recipe, "model": "tiny"}, required=f"model,dataset,{needs}")
    with pytest.raises(BadInput, match=f"{needs}: a value is missing"):
        request.read({"recipe": recipe, "model": "tiny", needs: ""}, required=f"model,dataset,{needs}")


def test_a_trial_is_a_run_with_the_usual_values_of_what_it_tries():
    found = sweep("method=lora,full", max_steps=7)
    trial = found.trial({"method": "full"}, run="trial-1")
    assert type(trial) is SftConfig and (trial.learning_rate, trial.max_steps, trial.run) == (2e-5, 7, "trial-1")
    assert found.trial({}).learning_rate == 2e-4
    wide = load_config({"recipe": "sweep", "trains": "pretrain", "search": "hidden_size=64,128 heads=2,4"})
    assert wide.trial({"hidden_size": 128}).intermediate_size == 384 != wide.trial({}).intermediate_size
    assert sweep("max_steps=10,20", trains="images", model="resnet18").trial({"max_steps": 20}).epochs is None


def test_what_is_listed_and_goes_together_is_the_whole_sweep():
    assert sweep("lora_r=8,16 dora=true,false", grid=True).planned == [
        {"lora_r": 8, "dora": True}, {"lora_r": 8, "dora": False},
        {"lora_r": 16, "dora": True}, {"lora_r": 16, "dora": False},
    ]  # fmt: skip
    assert sweep("lora_r=8,16", trials=20).total_trials == 2, "no more than there are"
    assert sweep("lora_r=8,16,32", trials=2).planned == [] and sweep(trials=7).total_trials == 7
    odd = load_config({"recipe": "sweep", "trains": "pretrain", "search": "hidden_size=64,250 heads=2,5", "grid": True})
    assert odd.planned == [{"hidden_size": 64, "heads": 2}, {"hidden_size": 250, "heads": 5}]


def test_a_trial_is_looked_at_often_enough_to_be_ended_early():
    assert (sweep().look_every(80), sweep().look_every(3), sweep(eval_every=7).look_every(80)) == (10, 1, 7)


def test_a_launch_writes_it_as_it_was_asked_for():
    plan = handed_on(decided({"recipe": "sweep", "model": "tiny", "search": SEARCH, "trials": 5}, look(), look()))
    files = files_of(plan, "b")
    text = files["config/training_config.yaml"]
    assert "search:" in text and "trials: 5" in text and "recipe: sweep" in text
    assert [one.folder for one in plan.extra_environments] == ["extra/sweep"]
    assert plan.calibrate == [], "each machine takes as much as it can"


def test_a_sweep_of_new_models_offers_no_size_by_what_travels_between_machines():
    new = {"recipe": "sweep", "trains": "pretrain", "search": "seed=1,2"}
    found = decided(new, look(), look())
    assert found.sizes == [] and handed_on(found).settings["trains"] == "pretrain"
    assert "tried with seed 1 or 2" in plan_view.lines(found)[0]


def test_what_is_typed_is_seen_to_be_several_values():
    assert is_search("lora_r", "8,16") and is_search("learning_rate", "1e-5..1e-3:log")
    assert not is_search("lora_targets", "q_proj,v_proj") and is_search("lora_targets", "all-linear|q_proj")
    assert not is_search("lora_r", "8") and not is_search("tokenizer", "../my-tokenizer")


def test_a_sweep_that_has_ended_goes_on_with_more_trials_of_what_it_tried():
    asked = {"recipe": "sweep", "trains": "preference", "model": "tiny", "dataset": "stdlib-qa", "search": SEARCH}
    before = decided(asked | {"run": "night", "trials": 5}, look())
    launched = json.loads(render.launched(handed_on(before), "now").content)
    node = look(runs={"night": {"launched": launched, "step": 5, "done": True}})
    again = decided({"recipe": "sweep", "resume": "night", "trials": 9}, node)
    assert again.request.config.trains == "preference"
    assert (again.run, again.settings["trials"], again.settings["search"]) == ("night", 9, SEARCH)
    with pytest.raises(BadInput, match="search: the run was launched with learning_rate"):
        decided({"recipe": "sweep", "resume": "night", "search": "lora_r=4,8"}, node)
