"""The last rows of a step are dealt out by samples: near to the speeds, and the same step."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from tests.train import cluster, reference
from tests.train.test_exactness import OPTIONS, ROWS_PER_STEP, STEPS, TOLERANCE, assert_each_row_once
from train.data.rows import IGNORED, open_rows
from train.engine.setup import make_balance
from train.engine.split_last_rows import may_deal
from train.models.model_files import model_folder
from train.parallel.deal_samples import deal, into_rows
from train.parallel.rebalance import Balance
from train.plan.settings.read_settings import load_config

SPEEDS = {"node-0": 5.0, "node-1": 2.0, "node-2": 1.0}


def test_all_are_dealt_once_and_nobody_without_speed_gets_one():
    samples = [(number, 10 + number % 7) for number in range(40)]
    dealt = deal([0, 100, 0, 0], samples, [4, 2, 0, 1])
    assert sorted(itertools.chain(*dealt)) == list(range(40)) and dealt[2] == []


@pytest.mark.parametrize("speeds", [(4, 2, 1), (10, 1, 3), (1, 1)])
def test_all_are_done_at_nearly_the_same_time(speeds):
    """Within the shortest sample of the ideal: whole rows of 200 would leave 8 of them up to a third longer."""
    random = np.random.default_rng(1)
    rows = [random.integers(20, 80, 4) for _ in range(8)]
    samples = [(number, int(tokens)) for number, tokens in enumerate(np.concatenate(rows))]
    dealt, lengths = deal([0] * len(speeds), samples, speeds), dict(samples)
    ideal_s = sum(lengths.values()) / sum(speeds)
    for own, speed in zip(dealt, speeds, strict=True):
        assert sum(lengths[number] for number in own) / speed <= ideal_s + min(lengths.values()) / speed


def test_what_is_dealt_makes_few_rows_that_are_none_too_long():
    samples = [(number, tokens) for number, tokens in enumerate((60, 50, 40, 40, 30, 20, 10))]
    rows = into_rows(samples, 100)
    assert len(rows) == 3 and sorted(itertools.chain(*rows)) == list(range(7))
    assert max(sum(samples[number][1] for number in row) for row in rows) <= 100
    assert into_rows([], 100) == []
    assert len(into_rows([(0, 60), (1, 60), (2, 60)], 100)) == 3, "two would be too long"


def test_samples_are_packed_as_their_rows_are(data):
    rows = open_rows(data)
    own = [rows.samples_of(0), [*rows.samples_of(3)][:1]]
    found = rows.packed(own)
    whole = rows.batch([0, 3])
    length = rows.lengths(own[1])[0]
    for name, values in found.items():
        np.testing.assert_array_equal(values[0], whole[name][0][: len(values[0])])
        np.testing.assert_array_equal(values[1][:length], whole[name][1][:length])
    assert (found["labels"][1][length:] == IGNORED).all()
    assert found["position_ids"][1][length:].tolist() == list(range(len(found["position_ids"][1]) - length))
    assert rows.targets_of(rows.samples_of(3)) == rows.targets[3]


def test_a_split_that_dealing_makes_up_for_stays():
    """By whole rows 13 of 24 would save 2.6 % of a step, which is worth a change after a while."""

    def changes(deals):
        balance = Balance("ab", 24, known={"a": 1.0, "b": 1.0}, deals=deals)
        step = {"a": {"rows": 12, "compute_s": 12 / 13}, "b": {"rows": 12, "compute_s": 12 / 11.7}}
        return [change.shares for _ in range(30) if (change := balance.learn(step))]

    assert changes(deals=False) == [{"a": 13, "b": 11}]
    assert changes(deals=True) == []


def test_rows_follow_the_speeds_all_the_same():
    """So that nobody's last row is too little to make up for it, and a person sees who is fast."""
    balance = Balance("ab", 6, known={"a": 1.0, "b": 1.0}, deals=True)
    step = {"a": {"rows": 3, "part": 4.0, "compute_s": 1.0}, "b": {"rows": 3, "part": 2.0, "compute_s": 1.0}}
    assert [change.shares for _ in range(5) if (change := balance.learn(step))] == [{"a": 4, "b": 2}]
    assert balance.dealt_by == [4.0, 2.0]


def test_a_machine_that_has_become_slower_is_noticed_though_its_part_differs_in_each_step():
    balance = Balance("ab", 8, known={"a": 4.0, "b": 4.0}, deals=True)

    def step(number, a_s):
        part = 4 + 0.1 * (number % 3)
        return {"a": {"rows": 4, "part": part, "compute_s": a_s}, "b": {"rows": 4, "part": 8 - part, "compute_s": 1.0}}

    for number in range(15):
        balance.learn(step(number, 1.0))
    for number in range(4):
        balance.learn(step(number, 2.0))
    assert balance.dealt_by[0] == pytest.approx(2.05, rel=0.05)


def settings(data, **options):
    speeds = ",".join(f"{name}={speed}" for name, speed in SPEEDS.items())
    return {**OPTIONS, "dataset": data, "speeds": speeds, **options}


def dealt_run(data, home, **options):
    return cluster.train(home, settings(data, **options), 3, changed="speeds_as_known")


@pytest.fixture(scope="module")
def truth(data):
    return reference.losses(model_folder("tiny"), data, steps=STEPS, rows_per_step=ROWS_PER_STEP)


@pytest.mark.parametrize("options", [{"sync": "ddp", "micro_batch": 2}, {"sync": "flat", "micro_batch": 1}])
def test_the_step_is_that_of_one_machine(data, truth, tmp_path, options):
    run = dealt_run(data, tmp_path, **options)
    whole = sum(SPEEDS.values())
    for rank in range(3):
        assert reference.largest_error(run.losses(rank), truth) < TOLERANCE
        assert_each_row_once(run, rank)
    parts = np.array([[node["part"] for node in step["nodes"].values()] for step in run.steps()])
    rows = open_rows(data)
    tokens = [step["tokens"] for step in run.steps()]
    np.testing.assert_allclose(parts.sum(1) * len(rows.tokens) / len(rows), tokens, rtol=1e-3)
    assert (np.abs(parts.sum(0) / parts.sum() - [v / whole for v in SPEEDS.values()]) < 0.02).all()


def test_a_sample_that_nobody_computes_ends_the_run(data, tmp_path):
    run = cluster.Cluster(tmp_path, settings(data), 3, changed="speeds_as_known+drops_a_sample")
    assert all(run.wait())
    assert "the nodes did not train the samples of this step" in run.said()


@pytest.mark.parametrize(
    ("options", "facts", "wanted"),
    [
        ({}, {}, True),
        ({"lora_dropout": 0.1}, {}, False),
        ({"neftune_alpha": 5}, {}, False),
        ({"shares": "5,2,1"}, {}, False),
        ({"balance": "even"}, {}, False),
        ({}, {"cut": True}, False),
        ({}, {"alone": True}, False),  # as of a family whose packed samples see each other
    ],
)
def test_rows_stay_whole_where_they_must(data, tmp_path, options, facts, wanted):
    rows = cluster.make_rows(tmp_path / "data", 9, 0, alone=True) if "alone" in facts else data
    config = load_config(settings(data, **options))
    deals = may_deal(config, open_rows(rows), SimpleNamespace(cut="cut" in facts))
    assert make_balance(config, list(SPEEDS), deals=deals).deals == wanted


def test_a_run_whose_rows_stay_whole_trains_whole_rows(data, tmp_path):
    run = dealt_run(data, tmp_path, max_steps=3, lora_dropout=0.1)
    assert all(node["part"] == node["rows"] for step in run.steps() for node in step["nodes"].values())
