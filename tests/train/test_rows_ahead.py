"""The rows of the next step are made while this one computes, and dropped where they are not those that are due."""

import re
import threading
from unittest.mock import Mock

import numpy as np
import pytest

from tests.train import cluster
from train.data.rows import open_rows
from train.engine.rows_ahead import Ahead, arrays_of
from train.engine.step_event import Fed
from train.models.row_noise import ROWS

KEY = (8, 4, 2)


def by_whom():
    return [{"by": np.array([threading.current_thread() is threading.main_thread()])}], Fed(micro_batch=2)


def made_in_time(batches) -> bool:
    return not batches[0]["by"][0]


def test_what_was_begun_is_taken_once():
    ahead = Ahead()
    ahead.begin(by_whom, KEY)
    assert made_in_time(ahead.take(by_whom, KEY)[0])
    assert not made_in_time(ahead.take(by_whom, KEY)[0])


@pytest.mark.parametrize("due", [(9, 4, 2), (8, 5, 2), (8, 4, 1)])
def test_other_rows_than_were_begun_are_made_again(due):
    ahead = Ahead()
    ahead.begin(by_whom, KEY)
    assert not made_in_time(ahead.take(by_whom, due)[0])


def test_what_went_wrong_ahead_is_an_error_of_its_step():
    ahead = Ahead()
    ahead.begin(Mock(side_effect=OSError("the disk is gone")), KEY)
    with pytest.raises(OSError, match="the disk is gone"):
        ahead.take(by_whom, KEY)


@pytest.mark.parametrize("draws", [False, True])
def test_the_books_and_the_rows_that_a_draw_is_for(data, draws):
    rows = open_rows(data)
    batches, fed = arrays_of(rows, [3, 1, 2], Fed(micro_batch=2, first=40), draws=draws)
    assert [len(batch["input_ids"]) for batch in batches] == [2, 1]
    assert (fed.first, fed.rows, fed.tokens) == (40, 3, rows.token_count([3, 1, 2]))
    if draws:
        assert [batch[ROWS].tolist() for batch in batches] == [[40, 41], [42]]


def test_who_trains_waits_for_the_first_rows_alone(data, tmp_path):
    settings = {"model": "tiny", "dataset": data, "max_steps": 8, "rows_per_step": 4, "micro_batch": 4, "wire": "fp32"}
    run = cluster.train(tmp_path, {**settings, "shares": "3,1"}, 2, changed="who_prepares")
    for rank in range(2):
        makers = re.findall("rows by ([A-Za-z ]*)", run.said(rank))
        assert makers[:8] == ["MainThread"] + ["rows ahead"] * 7
