"""Several data sets in one run: how often each row comes, and that it depends on nobody who computes."""

import json
import math
from collections import Counter
from itertools import chain
from types import SimpleNamespace

import numpy as np
import pytest

from tests.train import cluster
from train.data.mix_data_sets import RowsPart, epoch_of, looked_at, parts_of, row_at, rows_of_step
from train.data.prepare import prepare
from train.data.rows import open_rows
from train.errors import BadInput
from train.plan.settings.read_settings import GrpoConfig, SftConfig
from train.recipes.grpo.rows import open_prompts
from train.recipes.grpo.rows import prepare as prepare_prompts

PARTS = (RowsPart("a", 2, 0, 10), RowsPart("b", 1, 10, 15), RowsPart("c", 0.5, 15, 23), RowsPart("d", 0, 23, 30))
EPOCH = 20 + 5 + 4
COLUMNS = "?prompt=question&completion=reply"
WANTED = {"model": "tiny", "max_seq_length": 64, "eval_fraction": 0.2}
ROWS_PER_STEP = 10
OPTIONS = {"model": "tiny", "epochs": 1, "rows_per_step": ROWS_PER_STEP, "lora_r": 4, "learning_rate": 2e-3,
           "wire": "fp32", "save_every": 3, "eval_every": 4, "eval_rows": 12}  # fmt: skip


def drawn(first, end, seed=1):
    return [row_at(position, PARTS, seed) for position in range(first, end)]


def test_an_epoch_takes_each_row_as_often_as_its_weight_says():
    first, second = (Counter(drawn(EPOCH * epoch, EPOCH * (epoch + 1))) for epoch in (0, 1))
    for epoch in (first, second):
        assert [epoch[row] for row in range(15)] == [2] * 10 + [1] * 5
        assert not any(epoch[row] for row in range(23, 30)), "what has weight 0 is never trained on"
    halves = [sorted(row for row in epoch if 15 <= row < 23) for epoch in (first, second)]
    assert len(halves[0]) == len(halves[1]) == 4 and sorted(chain(*halves)) == list(range(15, 23))


def test_the_order_follows_from_the_position_and_the_seed_alone():
    whole = drawn(0, 3 * EPOCH)
    steps = [rows_of_step(step, rows=30, rows_per_step=7, seed=1, parts=PARTS) for step in range(12)]
    assert list(chain(*steps)) == whole[: 7 * 12]
    assert drawn(EPOCH, 2 * EPOCH) == whole[EPOCH : 2 * EPOCH] != whole[:EPOCH], "whoever begins there sees the same"
    assert drawn(0, EPOCH, seed=2) != whole[:EPOCH]
    assert Counter(row < 10 for row in whole[: EPOCH // 2])[True] < EPOCH // 2, "they are mixed, not one after another"


def test_as_many_held_out_rows_of_each_are_looked_at():
    of_each = [("a", 2, 0, 100), ("b", 1, 100, 103), ("c", 0, 103, 143), ("d", 1, 143, 143)]
    found = looked_at(SimpleNamespace(parts=[RowsPart(*part) for part in of_each]), 63)
    assert [(name, len(rows)) for name, rows in found] == [("a", 30), ("b", 3), ("c", 30)]
    assert found[1][1] == [100, 101, 102] and found[2][1][0] == 103


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(3)
    for name, count in (("a", 60), ("b", 25), ("c", 40)):
        words = [" ".join(random.choice(["oak", "elm", "ash", "fir", "yew"], 6)) for _ in range(count)]
        records = [{"question": f"{name}{n} {text}?", "reply": text} for n, text in enumerate(words)]
        cluster.write_records(folder / f"{name}.jsonl", records)
    return folder


def made(dataset, out):
    return prepare(SftConfig(dataset=dataset, **WANTED), lambda _: None, out=str(out))


def mixed(files, a="2", c="0.5"):
    return f"{files}/a.jsonl{COLUMNS}:{a},{files}/b.jsonl[:20]{COLUMNS},{files}/c.jsonl{COLUMNS}:{c}"


@pytest.fixture(scope="module")
def rows(files, tmp_path_factory):
    return made(mixed(files), tmp_path_factory.mktemp("rows") / "rows")


def test_a_data_set_that_is_cut_before_its_answers_names_the_length(files, tmp_path):
    long = cluster.write_records(tmp_path / "long.jsonl", [{"question": "n " * 90, "reply": "yes"}] * 6)
    with pytest.raises(BadInput, match=r"of 6 records, none has any of its answer .*\n.*long.jsonl\n.*max_seq_length="):
        made(f"{files}/a.jsonl{COLUMNS},{long}{COLUMNS}", tmp_path / "rows")


def test_each_row_is_of_one_data_set_and_its_origin_is_kept(files, rows):
    index = json.loads((rows / "index.json").read_text())
    told = [(part["name"], part["weight"], part["records"]) for part in index["parts"]]
    assert told == [("a", 2.0, 60), ("b", 1.0, 20), ("c", 0.5, 40)]
    train, held_out = open_rows(rows), open_rows(rows, "eval")
    assert [part.end for part in parts_of(train)][-1] == len(train)
    assert sum(part.size for part in parts_of(held_out)) == len(held_out) > 3
    for part, only in zip(parts_of(train), ("", "[:20]", ""), strict=True):
        alone = open_rows(made(f"{files}/{part.name}.jsonl{only}{COLUMNS}", rows.parent / part.name))
        assert part.size == len(alone) and not parts_of(alone)
        for row in range(len(alone)):
            assert np.array_equal(train.batch([part.first + row])["input_ids"], alone.batch([row])["input_ids"])


def test_prompts_are_mixed_likewise(files, tmp_path):
    config = GrpoConfig(dataset=mixed(files), rewards="length:9", **WANTED | {"max_seq_length": 256})
    train = open_prompts(prepare_prompts(config, lambda _: None, out=str(tmp_path / "rows")), "train", 8)
    a, b, c = parts_of(train)
    assert (a.weight, b.weight, c.weight) == (2, 1, 0.5) and epoch_of(train) == 2 * a.size + b.size + round(c.size / 2)
    assert train.record(b.first)["prompt"].startswith("b") and train.record(c.first)["prompt"].startswith("c")


def by_step(run):
    return {event["step"]: event for event in run.events(kind="eval")}


def test_three_machines_and_two_after_a_kill_are_one_for_an_epoch_of_these_weights(files, rows, tmp_path):
    options = OPTIONS | {"dataset": rows}
    alone = cluster.train(tmp_path / "alone", options)
    (tmp_path / "killed").mkdir()
    cluster.killed(tmp_path / "killed", options | {"shares": "5,2,1"}, 5)
    again = cluster.train(tmp_path / "killed", options, 2)
    assert again.losses() == pytest.approx(alone.losses(), rel=5e-6)
    train = open_rows(rows)
    assert len(alone.losses()) == math.ceil(epoch_of(train) / ROWS_PER_STEP) and epoch_of(train) > len(train)
    looks, others = by_step(alone), by_step(again)
    assert looks.keys() == others.keys() >= {4, 8, 12}
    for step, look in looks.items():
        assert look["metrics"].keys() == {"on a", "on b", "on c"}
        assert others[step]["metrics"] == pytest.approx(look["metrics"], rel=1e-5)
        assert min(look["metrics"].values()) <= look["loss"] <= max(look["metrics"].values())
    assert "held-out loss" in alone.said() and " · on b " in alone.said()
    assert alone.events(kind="start")[0]["identity"]["mix"] == "a:2, b:1, c:0.5"

    other = made(mixed(files, a="1"), tmp_path / "other")
    assert open_rows(other).hash == train.hash, "the same rows, only their weights differ"
    goes_on = cluster.Cluster(tmp_path / "alone", options | {"dataset": other, "epochs": 2})
    assert goes_on.wait() != [0] and "mix was a:2, b:1, c:0.5, is a:1, b:1, c:0.5" in goes_on.said()
