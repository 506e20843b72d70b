"""The packed data set on disk."""

import json

import numpy as np
import pytest

from tests.train import cluster
from train.data.rows import FORMAT, IGNORED, RowWriter, open_rows
from train.errors import BadInput


@pytest.fixture
def folder(tmp_path):
    return cluster.make_rows(tmp_path / "rows", rows=5, held_out=0)


def test_a_batch_is_padded_labelled_and_counted_per_sample(tmp_path):
    writer = RowWriter(tmp_path / "train", 8, 2)
    writer.add([([1, 2, 3], [1, 1, 1]), ([4, 5], [0, 1])])
    writer.add([([7], [0]), ([9, 8, 9, 8, 9, 8], [0, 0, 0, 1, 1, 1])])
    empty = RowWriter(tmp_path / "eval", 8, 2)
    index = {"train": writer.close(), "eval": empty.close()}
    facts = {"format": FORMAT, "row_length": 8, "token_bytes": 2, "pad_id": 0, "splits": index}
    (tmp_path / "index.json").write_text(json.dumps(facts))
    rows = open_rows(tmp_path)
    batch = rows.batch([1, 0])
    assert batch["input_ids"].tolist() == [[7, 9, 8, 9, 8, 9, 8], [1, 2, 3, 4, 5, 0, 0]]
    x = IGNORED
    # the first token of a sample is never a target, or the sample before it would be trained to predict it
    assert batch["labels"].tolist() == [[x, x, x, x, 8, 9, 8], [x, 2, 3, x, 5, x, x]]
    assert batch["position_ids"].tolist() == [[0, 0, 1, 2, 3, 4, 5], [0, 1, 2, 0, 1, 0, 1]]
    assert [rows.token_count([row]) for row in (1, 0)] == [7, 5]
    assert rows.targets.tolist() == [3, 3]
    assert len(open_rows(tmp_path, "eval")) == 0


def test_targets_are_what_a_shifted_loss_counts(folder):
    rows = open_rows(folder)
    for row in range(len(rows)):
        labels = rows.batch([row])["labels"]
        assert (labels[:, 1:] != IGNORED).sum() == rows.targets[row] > 0


def test_a_damaged_copy_is_recognised(folder):
    open_rows(folder).verify()
    tokens = np.memmap(folder / "train" / "tokens.bin", dtype="<u2", mode="r+")
    tokens[3] += 1
    tokens.flush()
    with pytest.raises(BadInput, match="damaged"):
        open_rows(folder).verify()


@pytest.mark.parametrize(
    ("harm", "message"),
    [
        (lambda f: (f / "train/targets.bin").write_bytes(b"\0" * 8), "cut short"),
        (lambda f: (f / "train/rows.bin").unlink(), "missing"),
        (lambda f: (f / "index.json").unlink(), "no prepared dataset"),
        (lambda f: (f / "index.json").write_text("{"), "damaged"),
        (lambda f: (f / "index.json").write_text('{"format": 99}'), "format 99"),
    ],
)
def test_an_unusable_folder_is_explained(folder, harm, message):
    harm(folder)
    with pytest.raises(BadInput, match=message):
        open_rows(folder)
