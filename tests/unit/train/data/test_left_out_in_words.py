from __future__ import annotations

import pytest

from train.data import left_out_in_words
from train.data.index import Index


@pytest.mark.parametrize(
    ("emptied", "sentence"),
    [
        (0, "data: 852 records are cut at 64 tokens"),
        (3, "data: 852 records are cut at 64 tokens, of 3 no answer is left"),
    ],
)
def test_lost_answers_are_named_only_where_a_cut_has_lost_some(emptied: int, sentence: str) -> None:
    index: Index = {
        "row_length": 64,
        "records": {"records": 1000, "bad": 0, "truncated": 852, "emptied": emptied, "longest": 90, "first_bad": []},
        "splits": {"eval": {"rows": 2}},
    }
    assert left_out_in_words.words(index) == [sentence]
