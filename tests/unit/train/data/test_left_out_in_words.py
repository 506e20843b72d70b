import pytest

from train.data import left_out_in_words
from train.data.index import Index


@pytest.mark.parametrize(("emptied", "more"), [(0, ""), (3, ", of 3 no answer is left")])
def test_lost_answers_are_named_only_where_a_cut_has_lost_some(emptied, more):
    index: Index = {
        "row_length": 64,
        "records": {"records": 1000, "bad": 0, "truncated": 852, "emptied": emptied, "longest": 90, "first_bad": []},
        "splits": {"eval": {"rows": 2}},
    }
    assert left_out_in_words.words(index) == [f"data: 852 records are cut at 64 tokens{more}"]
