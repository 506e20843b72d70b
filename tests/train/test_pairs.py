"""Rows of preferences on disk: which tokens are compared, and what is left out."""

import json

import numpy as np
import pytest

from tests.train import cluster
from train.data.rows import open_rows
from train.data.to_tokens import load_chat
from train.errors import BadInput
from train.plan.model.catalogue import resolve_model
from train.plan.settings.read_settings import PreferenceConfig
from train.recipes.preference.rows import open_pairs, prepare

PAIR = {"prompt": "Where is the key?", "chosen": "In the hall, gladly.", "rejected": "Hall."}
SINGLE = [{"prompt": f"What is {i}?", "completion": f"It is {'very ' * i}{i}.", "label": i != 1} for i in range(4)]


def made(folder, records, loss="dpo", **more):
    folder.mkdir(exist_ok=True)
    data = cluster.write_records(folder / "answers.jsonl", records)
    values = {"dataset": str(data), "eval_fraction": 0.0, "max_seq_length": 96} | more
    return prepare(PreferenceConfig(loss=loss, **values), lambda _: None, out=str(folder / "rows"))


def texts(rows, row):
    """Of both sequences all of it, and the answer alone."""
    decode = load_chat(resolve_model("tiny")).tokenizer.decode
    both = [rows.sequences([row], which)[0] for which in (0, 1)]
    return [(decode(tokens.tolist()), decode(tokens[own == 1].tolist())) for tokens, own in both]


def test_a_row_is_both_answers_behind_the_prompt(tmp_path):
    rows = open_pairs(made(tmp_path, [PAIR]), "train", paired=True)
    (chosen, better), (rejected, worse) = texts(rows, 0)
    assert better.startswith("In the hall, gladly.") and worse.startswith("Hall.")
    assert chosen.endswith(better) and rejected.endswith(worse) and "Where is the key?" in chosen
    assert chosen[: -len(better)] == rejected[: -len(worse)], "one prompt"
    assert rows.targets.tolist() == [1] and rows.labels.tolist() == [1]
    batch = rows.batch([0])
    assert batch["input_ids"].shape == batch["labels"].shape == (2, max(rows.lengths[0]))


def test_earlier_answers_are_of_the_prompt(tmp_path):
    before = [
        {"role": "user", "content": "Hello?"}, {"role": "assistant", "content": "Good day."},
        {"role": "user", "content": "Where is the key?"},
    ]  # fmt: skip
    record = {name: [*before, {"role": "assistant", "content": PAIR[name]}] for name in ("chosen", "rejected")}
    rows = open_pairs(made(tmp_path, [record]), "train", paired=True)
    for whole, answer in texts(rows, 0):
        assert "Good day." in whole and "Good day." not in answer and answer


def test_a_single_answer_is_beside_that_of_the_record_before(tmp_path):
    rows = open_pairs(made(tmp_path, SINGLE, "kto"), "train", paired=False)
    found = [texts(rows, row) for row in range(4)]
    said = [(own[1].split(".")[0], other[1].split(".")[0]) for own, other in found]
    answers = [record["completion"].removesuffix(".") for record in SINGLE]
    assert said == [(answers[i], answers[(i - 1) % 4]) for i in (1, 2, 3, 0)]
    assert all(own[0].split("It is")[0] == other[0].split("It is")[0] for own, other in found), "each its own prompt"
    assert rows.labels.tolist() == [0, 1, 1, 1]


def test_what_is_cut_to_the_same_is_left_out(tmp_path):
    same = " and so on" * 30
    longer = {"prompt": "a", "chosen": f"b{same} yes", "rejected": f"b{same} no"}
    folder = made(tmp_path, [PAIR, longer])
    index = json.loads((folder / "index.json").read_text())
    assert len(open_pairs(folder, "train", paired=True)) == 1
    assert (index["records"]["truncated"], index["records"]["emptied"]) == (1, 1)
    with pytest.raises(BadInput, match=r"of 1 records, none has answers that differ within 96 tokens\n.*\nthe longest"):
        made(tmp_path / "none", [longer])


def test_what_was_said_before_a_launch_is_said_again(tmp_path):
    with pytest.raises(BadInput, match="'chosen' and 'rejected' are the same answer"):
        made(tmp_path, [PAIR | {"rejected": PAIR["chosen"]}])
    with pytest.raises(BadInput, match=r"all rows of a run are of one kind\nfound: answers.jsonl line 2"):
        made(tmp_path, [PAIR, SINGLE[0]])


def test_rows_of_another_kind_are_refused(tmp_path):
    folder = made(tmp_path, [PAIR])
    with pytest.raises(BadInput, match="these rows are no single answers with a label"):
        open_pairs(folder, "train", paired=False)
    with pytest.raises(BadInput, match=r"these rows are answers to compare\n.*\ntrain them with recipe=preference"):
        open_rows(folder)


@pytest.mark.parametrize("name", ["tokens.bin", "labels.bin"])
def test_damaged_rows_are_found(tmp_path, name):
    folder = made(tmp_path, [PAIR, PAIR | {"prompt": "And now?"}])
    open_pairs(folder, "train", paired=True).verify()
    file = folder / "train" / name
    file.write_bytes(bytes(np.frombuffer(file.read_bytes(), dtype="u1") ^ 1))
    with pytest.raises(BadInput, match="damaged"):
        open_pairs(folder, "train", paired=True).verify()


def test_the_same_data_is_prepared_once(tmp_path):
    folder = made(tmp_path, [PAIR])
    before = (folder / "index.json").stat().st_mtime_ns
    assert made(tmp_path, [PAIR]) == folder and (folder / "index.json").stat().st_mtime_ns == before
