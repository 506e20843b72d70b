"""The heart: whatever the cluster, the losses are those of one machine: all runs are compared with reference.py."""

import functools
import zlib

import numpy as np
import pytest
import torch
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

from tests.train import cluster, reference
from tests.train.bases import FORMS
from train.models import dropout
from train.models.hf import in_train_mode
from train.models.model_files import model_folder

STEPS, ROWS_PER_STEP, ROWS, SEED = 20, 8, 60, 3407
TOLERANCE = 5e-6
OPTIONS = reference.OPTIONS | {"max_steps": STEPS, "save_every": 4, "proof_every": 4}
IN_4_BIT = {"load_in": "4bit", "eval_every": 5}
"""An evaluation in its midst: what is trained after it must be the same."""


@pytest.fixture(scope="module")
def truth_of(data):
    def losses(form):
        nf4 = form == "4bit"
        return reference.losses(model_folder("tiny"), data, steps=STEPS, rows_per_step=ROWS_PER_STEP, nf4=nf4)

    return functools.cache(losses)


@pytest.fixture
def truth(truth_of, form) -> list[float]:
    return truth_of(form)


@pytest.fixture
def settings(data, form) -> dict:
    return {**OPTIONS, "dataset": data, **(IN_4_BIT if form == "4bit" else {})}


def assert_each_row_once(run: cluster.Cluster, rank: int = 0) -> None:
    """From the event log alone: the steps are 1, 2, 3 …, their slices have no gap and no overlap, and each process fed
    exactly the rows of its slice. The row order is worked out here again."""
    stream = np.concatenate([np.random.Generator(np.random.PCG64([SEED, e])).permutation(ROWS) for e in range(20)])
    steps = run.steps(rank)
    assert [event["step"] for event in steps] == list(range(1, len(steps) + 1))
    position = 0
    for event in steps:
        for node in event["nodes"].values():
            assert node["first"] == position
            fed = stream[position : position + node["rows"]].astype("<i8")
            assert node["rows_crc"] == zlib.crc32(fed.tobytes())
            position += node["rows"]
        assert position == event["step"] * ROWS_PER_STEP


CLUSTERS = {
    "one process": (1, {}),
    "one process, micro-batch 1": (1, {"micro_batch": 1}),
    "three, balance and sync auto": (3, {}),
    "5:2:1, ddp, micro-batch 2": (3, {"shares": "5,2,1", "sync": "ddp", "micro_batch": 2}),
    "5:2:1, flat, micro-batch 4": (3, {"shares": "5,2,1", "sync": "flat", "micro_batch": 4}),
    "a share of zero, ddp": (3, {"shares": "3,0,1", "sync": "ddp", "gradient_checkpointing": "true"}),
    "a share of zero, flat": (3, {"shares": "0,3,1", "sync": "flat"}),
}
IN_4_BIT_ALWAYS = ("5:2:1, ddp, micro-batch 2", "a share of zero, flat")


def cases(names, always, seldom=()):
    """Each on both forms of the base; in test-long alone: in 16 bit what is seldom, in 4 bit what is not `always`."""

    def case(form, name):
        usual = name in always if form == "4bit" else name not in seldom
        marks = [] if usual else [pytest.mark.long]
        return pytest.param(form, name, marks=marks, id=f"{form}-{name}")

    return [case(form, name) for form in FORMS for name in names]


@pytest.mark.parametrize(("form", "name"), cases(CLUSTERS, IN_4_BIT_ALWAYS, ("one process", *IN_4_BIT_ALWAYS)))
def test_losses_are_those_of_one_machine(name, settings, truth, tmp_path):
    size, options = CLUSTERS[name]
    run = cluster.train(tmp_path, {**settings, **options}, size)
    for rank in range(size):
        assert reference.largest_error(run.losses(rank), truth) < TOLERANCE
        assert_each_row_once(run, rank)


def test_a_base_in_4_bit_has_losses_of_its_own(truth_of):
    """Else the comparisons on it could not tell it from the plain one."""
    plain, quantised = (truth_of(form)[:5] for form in FORMS)  # while the rate warms up, alike in both
    assert reference.largest_error(quantised, plain) > 100 * TOLERANCE


@pytest.mark.parametrize("form", [pytest.param("16bit", marks=pytest.mark.long), "4bit"])
def test_shares_may_change_at_every_step(settings, truth, tmp_path):
    run = cluster.train(tmp_path, {**settings, "balance": "even"}, 3, changed="moving_shares")
    assert len({tuple(event["shares"]) for event in run.steps()}) > 3
    assert reference.largest_error(run.losses(), truth) < TOLERANCE
    assert_each_row_once(run)


@pytest.mark.parametrize("sync", [pytest.param("ddp", marks=pytest.mark.long), "flat"])
def test_balance_corrects_a_wrong_guess_and_follows_a_slow_process_and_its_recovery(sync, data, truth, tmp_path):
    """The times are made up (rank 1 takes four times as long up to step 10); what follows from them is real."""
    options = {**OPTIONS, "dataset": data, "sync": sync, "speeds": "node-0=100,node-1=80,node-2=4"}
    run = cluster.train(tmp_path, options, 3, changed="slow_rank=30")
    rows = [[node["rows"] for node in event["nodes"].values()] for event in run.steps()]
    assert rows[0][2] == 0
    assert rows[7] == rows[9] == [4, 1, 3]
    assert sorted(rows[13]) == sorted(rows[19]) == [2, 3, 3]
    changes = run.events(kind="balance")
    for event in changes:
        assert list(event["shares"].values()) == rows[event["step"]] != rows[event["step"] - 1]
    assert "node-1 sped up from" in changes[-1]["reason"]
    assert reference.largest_error(run.losses(), truth) < TOLERANCE
    assert_each_row_once(run)


KILLED = {f"{before} then {after}": (before, after) for before, after in ((3, 3), (3, 2), (1, 3))}


@pytest.mark.parametrize(("form", "name"), cases(KILLED, ("3 then 2",), ("3 then 3", "3 then 2")))
def test_a_killed_run_goes_on_exactly(form, name, settings, truth, tmp_path):
    """SIGKILL in the middle, then the same command with the same or another number of processes. A process without a
    checkpoint of its own gets everything from one that has it."""
    before, after = KILLED[name]
    killed_at, every = 9, settings["save_every"]
    run = cluster.Cluster(tmp_path, settings, before)
    run.reaches(killed_at)
    run.stop()
    run = cluster.train(tmp_path, settings, after)
    start = run.events(kind="start")[-1]
    assert start["step"] >= killed_at // every * every
    assert start["decisions"]["load_in"] == form
    assert any("by the speeds known so far, node-0 " in reason for reason in start["reasons"])
    assert reference.largest_error(run.losses(), truth) < TOLERANCE
    assert_each_row_once(run)


def test_full_fine_tuning_is_exact_too(data, tmp_path):
    options = {**OPTIONS, "dataset": data, "method": "full", "max_steps": 10, "learning_rate": 1e-3, "shares": "3,1"}
    run = cluster.train(tmp_path, options, 2)
    truth = reference.losses(model_folder("tiny"), data, steps=10, rows_per_step=8, rate=1e-3, full=True)
    assert reference.largest_error(run.losses(), truth) < TOLERANCE


def test_bf16_wire_stays_within_its_bound(data, truth, tmp_path):
    """Rounding the gradients on their way costs 6e-6 after 20 steps, 1.9e-5 after 50: no error feedback is needed."""
    run = cluster.train(tmp_path, {**OPTIONS, "dataset": data, "wire": "bf16", "shares": "5,2,1"}, 3)
    error = reference.largest_error(run.losses(), truth)
    assert 1e-6 < error < 5e-5


def test_the_usual_mean_of_means_would_fail(data, truth, tmp_path):
    """What plain data parallelism does, each rank dividing by its own tokens, is far outside the tolerance."""
    run = cluster.train(tmp_path, {**OPTIONS, "dataset": data, "shares": "5,2,1"}, 3, changed="mean_of_means")
    assert reference.largest_error(run.losses(), truth) > 1000 * TOLERANCE


def test_a_base_that_drops_at_random_trains_without():
    """A mask would depend on the micro-batch and on who computes."""
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(vocab_size=64, attention_dropout=0.5, **sizes)
    model = in_train_mode(nn.Sequential(LlamaForCausalLM(config), nn.Dropout(0.5)))
    ids = torch.arange(32)[None]
    first, again = (model[1](model[0](input_ids=ids).logits) for _ in range(2))
    assert torch.equal(first, again)
    assert "attention_dropout 0.5, dropout 0.5 is set to 0" in dropout.why(model)[0]
