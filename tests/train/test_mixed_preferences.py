"""Several data sets in a run by preferences: each row is what its data set has alone, and nobody's share decides."""

import functools

import numpy as np
import pytest

from tests.train import cluster
from train.data.mix_data_sets import epoch_of, parts_of
from train.errors import BadInput
from train.plan.settings.read_settings import PreferenceConfig
from train.recipes.preference.rows import open_pairs, prepare

COUNTS = {"a": 44, "b": 20, "c": 24}
WANTED = {"model": "tiny", "max_seq_length": 96, "eval_fraction": 0.2}
OPTIONS = {
    **{"recipe": "preference", "model": "tiny", "max_steps": 10, "rows_per_step": 6, "max_seq_length": 96},
    **{"lora_r": 4, "learning_rate": 2e-3, "wire": "fp32", "save_every": 3, "eval_every": 5, "eval_rows": 10},
}
TOLERANCE = 1e-5
MIX = "{0}/a.jsonl:2,{0}/b.jsonl,{0}/c.jsonl:0.5"


def record(name, number, paired):
    prompt, kind, curt = f"{name} {number}, please?", f"It is {'very ' * (number % 4)}{number}.", f"{number}!"
    if paired:
        return {"prompt": prompt, "chosen": kind, "rejected": curt}
    return {"prompt": prompt, "completion": kind if number % 3 else curt, "label": bool(number % 3)}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The rows of what is asked for of files of either kind."""

    @functools.cache
    def rows(paired, wanted):
        folder = tmp_path_factory.mktemp("files")
        for name, count in COUNTS.items():
            cluster.write_records(folder / f"{name}.jsonl", [record(name, number, paired) for number in range(count)])
        config = PreferenceConfig(dataset=wanted.format(folder), loss="dpo" if paired else "kto", **WANTED)
        return prepare(config, lambda _: None, out=str(folder / "rows"))

    return rows


@pytest.mark.parametrize("paired", [True, False])
def test_each_row_is_what_its_data_set_has_alone(paired, made):
    for split in ("train", "eval"):
        rows = open_pairs(made(paired, MIX), split, paired=paired)
        assert [(part.name, part.weight) for part in parts_of(rows)] == [("a", 2.0), ("b", 1.0), ("c", 0.5)]
        assert parts_of(rows)[-1].end == len(rows)
        for part in parts_of(rows):
            alone = open_pairs(made(paired, f"{{0}}/{part.name}.jsonl"), split, paired=paired)
            assert part.size == len(alone) > 1 and not parts_of(alone)
            for row in range(len(alone)):
                one, other = rows.batch([part.first + row]), alone.batch([row])
                assert all(np.array_equal(one[name], other[name]) for name in one)
                assert rows.labels[part.first + row] == alone.labels[row]
    train = open_pairs(made(paired, MIX), "train", paired=paired)
    a, b, c = parts_of(train)
    assert epoch_of(train) == 2 * a.size + b.size + round(c.size / 2)


def test_a_data_set_of_which_nothing_is_left_is_named(tmp_path):
    so_on = " and so on" * 60
    long = {"prompt": "a", "chosen": f"b{so_on} yes", "rejected": f"b{so_on} no"}
    for name, one in (("long", long), ("short", record("b", 1, True))):
        cluster.write_records(tmp_path / f"{name}.jsonl", [one])
    data = f"{tmp_path}/short.jsonl:3,{tmp_path}/long.jsonl"
    with pytest.raises(BadInput, match=r"none has answers that differ within 96 tokens\nfile: .*/long.jsonl\n"):
        prepare(PreferenceConfig(dataset=data, **WANTED | {"eval_fraction": 0}), print, out=str(tmp_path / "rows"))


@pytest.mark.parametrize("loss", [pytest.param("dpo", marks=pytest.mark.long), "kto"])
def test_three_machines_and_two_after_a_kill_are_one(loss, made, tmp_path):
    options = OPTIONS | {"loss": loss, "dataset": made(loss == "dpo", MIX)}
    alone = cluster.train(tmp_path / "alone", options)
    (tmp_path / "killed").mkdir()
    cluster.killed(tmp_path / "killed", options | {"shares": "5,2,1"}, 4)
    again = cluster.train(tmp_path / "killed", options, 2)
    assert again.losses() == pytest.approx(alone.losses(), rel=TOLERANCE)
    looks, others = ({event["step"]: event for event in run.events(kind="eval")} for run in (alone, again))
    assert looks.keys() == others.keys() == {0, 5, 10}
    names = {"on a", "on b", "on c"}
    for step, look in looks.items():
        assert others[step]["metrics"] == pytest.approx(look["metrics"], rel=TOLERANCE, abs=TOLERANCE)
        each = [look["metrics"][name] for name in sorted(names)]
        assert names < look["metrics"].keys() and min(each) <= look["loss"] <= max(each) and look["targets"] == 10
    assert " · on b " in alone.said()
    assert alone.events(kind="start")[0]["identity"]["mix"] == "a:2, b:1, c:0.5"
