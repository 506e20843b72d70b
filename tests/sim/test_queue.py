"""Real agents with a queue of runs in played time: stories from seeds, and faults of the product that are found."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.sim import queue_story
from tests.sim.queue_story import QueueStory, play
from tests.sim.search import on_all_processors
from train.cluster.queue_keeper import QueueKeeper
from train.runlog.run_queue import Queue

MANY = 40


def holds(seeds: Iterable[int]) -> int:
    """How many faults and changes they had."""
    count = 0
    for seed, broken, faults in on_all_processors(queue_story.broken_by, seeds):
        assert not broken, f"seed {seed}: {broken}\nagain: python -m tests.sim.queue_story {seed}"
        count += faults
    return count


def test_no_run_is_lost_or_doubled() -> None:
    assert holds(range(MANY)) >= 200 - 20


@pytest.mark.long
def test_no_run_is_lost_or_doubled_in_a_thousand_faults() -> None:
    assert holds(range(MANY, 250)) > 1000


def test_a_story_is_the_same_each_time() -> None:
    one, again = play(QueueStory.of(5)), play(QueueStory.of(5))
    assert one.journal == again.journal and one.steps > 0


def breaks(seeds: Iterable[int] = range(30)) -> str:
    return next((broken for _, broken, _ in map(queue_story.broken_by, seeds) if broken), "")


def test_an_end_that_is_not_told_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueKeeper, "_ask_for_ever", lambda _: None)
    assert breaks()


def test_an_end_that_is_not_kept_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueKeeper, "ended", lambda *_: None)
    assert breaks()


def test_a_queue_that_the_last_to_speak_wins_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Queue, "merged", lambda self, other: other if other.entries else self)
    assert breaks()


def test_a_stop_that_is_not_listened_to_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(QueueKeeper, "is_to_leave", lambda _: False)
    assert breaks()
