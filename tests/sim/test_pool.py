"""A story of a run in pieces that is told by hand."""

from __future__ import annotations

import pytest

from tests.sim.faults import Fault
from tests.sim.pool_story import PoolStory
from tests.sim.story import play


def test_the_last_piece_is_taken_from_one_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    story = PoolStory(1, 3, (Fault("worker hangs", 4, 2, 1, 0),), (1.0,) * 12)
    after = "s after the last fault"
    assert play(story).counted[after] < 10
    monkeypatch.setattr("train.pool.pieces.worth_again", lambda *_: -1)
    assert play(story).counted[after] > 60  # its agent alone sees it by its silence
