"""Stories of a run that are told by hand."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.sim.faults import Fault
from tests.sim.run_story import PlayedRun, RunStory
from tests.sim.search import report, shrunk
from tests.sim.story import play
from train.cluster.timing import TIMING


@pytest.mark.parametrize("others", ["end", "are stopped"])
def test_who_was_away_when_the_run_ended_does_not_wait_for_ever(others: str) -> None:
    with closing(PlayedRun(RunStory(3, 3, ()))) as cluster:
        *rest, away = cluster.order
        lives = cluster.machines
        cluster.train_or_wait(cluster.order)
        cluster.power_off(away)
        cluster.train_or_wait(rest)
        if others == "end":
            cluster.training.last_step = cluster.truth.step + 3
        else:
            for name in rest:
                cluster.ask_to_end(name)
        cluster.until(lambda: all(lives[name].life.is_over for name in rest), 30, cluster.states)
        cluster.power_on(away)
        cluster.play.run(cluster.play.time + TIMING.over_s - 5)
        assert "no majority" in lives[away].life.agent.reason
        cluster.until(lambda: lives[away].life.is_over, 20, cluster.states)
        assert f"{away} ends with 143" in cluster.play.journal[-1]


def test_an_agent_that_is_held_just_as_the_run_ends_finds_that_its_workers_have_finished() -> None:
    with closing(PlayedRun(RunStory(3, 3, ()))) as cluster:
        *rest, held = cluster.order
        cluster.train_or_wait(cluster.order)
        cluster.training.last_step = last = cluster.truth.step + 3
        ways = {way for one in rest for way in ((one, held), (held, one))}
        cluster.freeze(held)
        while cluster.training.nodes[held].kept < last:
            cluster.play.run(cluster.play.time + 0.01)
        cluster.cut(ways)  # it does not hear the others' farewell
        cluster.until(lambda: all(cluster.ended.get(name) == 0 for name in rest), 30, cluster.states)
        cluster.play.run(cluster.play.time + TIMING.pause_s + 2)
        cluster.plug(ways)
        cluster.machines[held].life.agent.heartbeat.woke.set()  # the clock is looked at first
        cluster.thaw(held)
        cluster.until(lambda: cluster.ended.get(held) == 0, 10, cluster.states)


def test_a_story_that_breaks_is_shrunk_to_what_breaks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here by a bound that nobody can keep."""
    faults = (Fault("clock set", 1, 3, 0, 1), Fault("cable out", 2, 12, 1, 0), Fault("told twice", 3, 8, 2, 0))
    story = RunStory(5, 3, faults, "links", (1,), 4, ends=True)
    assert play(story).broken == ""
    monkeypatch.setattr("tests.sim.truth.PLACE_S", -1.0)
    small = shrunk(story)
    assert [fault.kind for fault in small.faults] == ["cable out"] and small.faults[0].lasts_s == 6
    assert (small.ending, small.out, small.layers, small.ends) == ("whole", (), 0, False)
    assert RunStory.from_json(small.to_json()) == small
    assert "come and gone" in report(story) and "python -m tests.sim run 5" in report(story)
