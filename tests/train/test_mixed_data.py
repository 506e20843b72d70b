"""Several data sets in one run: how often each row comes, and that it depends on nobody who computes."""

import json
from collections import Counter
from itertools import chain

import numpy as np
import pytest

from tests.train import cluster
from train.data.mix_data_sets import RowsPart, epoch_of, looked_at, parts_of, row_at
from train.data.prepare import prepare
from train.data.row_order import rows_of_step
from train.data.rows import open_rows
from train.errors import BadInput
from train.plan.settings.config import GrpoConfig, SftConfig
from train.recipes.grpo.rows import open_prompts
from train.recipes.grpo.rows import prepare as prepare_prompts

PARTS = (RowsPart("a", 2, 0, 10), RowsPart("b", 1, 10, 15), RowsPart("c", 0.5, 15, 23), RowsPart("d", 0, 23, 30))
EPOCH = 20 + 5 + 4
STEPS = 12
OPTIONS = {"model": "tiny", "max_steps": STEPS, "rows_per_step": 6, "lora_r": 4, "learning_rate": 2e-3, "wire": "fp32",
           "save_every": 3, "eval_every": 4, "eval_rows": 12}  # fmt: skip


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
    class Held:
        parts = (
            RowsPart("a", 2, 0, 100),
            RowsPart("b", 1, 100, 103),
            RowsPart("c", 0, 103, 143),
            RowsPart("d", 1, 143, 143),
        )

    found = looked_at(Held(), 63)
    assert [(name, len(rows)) for name, rows in found] == [("a", 30), ("b", 3), ("c", 30)]
    assert found[1][1] == [100, 101, 102] and found[2][1][0] == 103


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    random = np.random.default_rng(3)
    for name, count in (("a", 60), ("b", 25), ("c", 40)):
        words = [" ".join(random.choice(["oak", "elm", "ash", "fir", "yew"], 6)) for _ in range(count)]
        records = [{"question": f"{name}{n} {text}?", "reply": text} for n, text in enumerate(words)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def test_a_data_set_that_is_cut_before_its_answers_names_the_length(files, tmp_path):
    records = [{"question": f"{n} " * 90, "reply": "yes"} for n in range(6)]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    data = f"{files}/a.jsonl{COLUMNS},{tmp_path}/long.jsonl{COLUMNS}"
    with pytest.raises(BadInput, match=r"of 6 records, none has any of its answer .*\n.*long.jsonl\n.*max_seq_length="):
        prepare(SftConfig(**WANTED, dataset=data), print, out=str(tmp_path / "rows"))


COLUMNS = "?prompt=question&completion=reply"
WANTED = {"model": "tiny", "max_seq_length": 64, "eval_fraction": 0.2}


def dataset(files, a="2", c="0.5"):
    return f"{files}/a.jsonl{COLUMNS}:{a},{files}/b.jsonl[:20]{COLUMNS},{files}/c.jsonl{COLUMNS}:{c}"


@pytest.fixture(scope="module")
def rows(files, tmp_path_factory):
    config = SftConfig(dataset=dataset(files), **WANTED)
    return prepare(config, lambda _: None, out=str(tmp_path_factory.mktemp("rows") / "rows"))


def test_each_row_is_of_one_data_set_and_its_origin_is_kept(files, rows):
    index = json.loads((rows / "index.json").read_text())
    assert [(part["name"], part["weight"], part["records"]) for part in index["parts"]] == [
        ("a", 2.0, 60), ("b", 1.0, 20), ("c", 0.5, 40),
    ]  # fmt: skip
    train, held_out = open_rows(rows), open_rows(rows, "eval")
    assert [part.end for part in parts_of(train)][-1] == len(train)
    assert sum(part.size for part in parts_of(held_out)) == len(held_out) > 3
    for number, name in enumerate("abc"):
        config = SftConfig(dataset=f"{files}/{name}.jsonl{'[:20]' * (name == 'b')}{COLUMNS}", **WANTED)
        alone = open_rows(prepare(config, lambda _: None, out=str(rows.parent / name)))
        part = parts_of(train)[number]
        assert part.size == len(alone) and not parts_of(alone)
        for row in range(len(alone)):
            assert np.array_equal(train.batch([part.first + row])["input_ids"], alone.batch([row])["input_ids"])


def test_prompts_are_mixed_likewise(files, tmp_path):
    config = GrpoConfig(dataset=dataset(files), rewards="length:9", **WANTED | {"max_seq_length": 256})
    folder = prepare_prompts(config, lambda _: None, out=str(tmp_path / "rows"))
    train = open_prompts(folder, "train", 8)
    a, b, c = parts_of(train)
    assert (a.weight, b.weight, c.weight) == (2, 1, 0.5) and epoch_of(train) == 2 * a.size + b.size + round(c.size / 2)
    assert train.record(b.first)["prompt"].startswith("b") and train.record(c.first)["prompt"].startswith("c")


def test_three_machines_are_one_and_a_killed_run_continues_in_the_same_order(rows, tmp_path):
    alone = cluster.train(tmp_path / "alone", OPTIONS | {"dataset": rows})
    three = cluster.train(tmp_path / "three", OPTIONS | {"dataset": rows, "shares": "5,2,1"}, 3)
    assert three.losses() == pytest.approx(alone.losses(), rel=5e-6)
    (tmp_path / "killed").mkdir()
    cluster.killed(tmp_path / "killed", OPTIONS | {"dataset": rows}, 5)
    again = cluster.train(tmp_path / "killed", OPTIONS | {"dataset": rows}, 2)
    assert again.losses() == pytest.approx(alone.losses(), rel=5e-6)
    evals, others = ([e for e in run.events() if e["event"] == "eval"] for run in (alone, three))
    assert len(evals) == 3 and all(set(e["metrics"]) == {"on a", "on b", "on c"} for e in evals)
    for one, other in zip(evals, others, strict=True):
        assert other["metrics"] == pytest.approx(one["metrics"], rel=1e-5)
        assert min(one["metrics"].values()) <= one["loss"] <= max(one["metrics"].values())
    assert "held-out loss" in alone.said() and " · on b " in alone.said()
    start = next(e for e in alone.events() if e["event"] == "start")
    assert start["identity"]["mix"] == "a:2, b:1, c:0.5"


def test_an_epoch_is_as_long_as_the_weights_make_it_and_others_are_another_run(files, rows, tmp_path):
    train = open_rows(rows)
    options = {name: value for name, value in OPTIONS.items() if name != "max_steps"}
    run = cluster.train(tmp_path, options | {"dataset": rows, "epochs": 1, "save_every": 100})
    assert len(run.losses()) == -(-epoch_of(train) // 6) and epoch_of(train) > len(train)
    config = SftConfig(dataset=dataset(files, a="1"), **WANTED)
    other = prepare(config, lambda _: None, out=str(tmp_path / "other"))
    assert open_rows(other).hash == train.hash, "the same rows, only their weights differ"
    goes_on = cluster.Cluster(tmp_path, options | {"dataset": other, "epochs": 2})
    assert goes_on.wait() != [0] and "mix was a:2, b:1, c:0.5, is a:1, b:1, c:0.5" in goes_on.said()
