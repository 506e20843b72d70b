"""Stories of a run that are told by hand."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.sim.run_story import PlayedRun, RunStory
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


@pytest.mark.parametrize("who", [0, 2])
@pytest.mark.parametrize("what", ["its worker dies", "its agent is killed"])
def test_the_others_train_on_while_one_loads_again(who: int, what: str) -> None:
    """Also where that one leads; it has its place as soon as it has loaded."""
    with closing(PlayedRun(RunStory(3, 4, ()))) as cluster:
        for node in cluster.training.nodes.values():
            node.stays, node.loads_s = True, 8.0
        name, rest = cluster.order[who], {*cluster.order} - {cluster.order[who]}
        cluster.until(lambda: cluster.truth.members == frozenset(cluster.order), 30, cluster.states)
        cluster.play.run(cluster.play.time + 5.0)
        if what == "its worker dies":
            cluster.training.end_workers(name)
        else:
            cluster.kill_agent(name)
        gone_at = cluster.play.time
        cluster.until(lambda: cluster.truth.members == frozenset(rest), 5.5, cluster.states)
        cluster.until(lambda: cluster.truth.members == frozenset(cluster.order), 12.0, cluster.states)
        assert cluster.play.time - gone_at > 8.0


def test_a_worker_that_is_told_of_another_group_does_not_call_its_old_one_s_end_a_failure() -> None:
    """Steps of seconds: of many workers the last hears of the next group long after the first has left the old one."""
    with closing(PlayedRun(RunStory(5, 5, ()))) as cluster:
        for node in cluster.training.nodes.values():
            node.stays, node.step_s = True, 2.0
        *rest, last = cluster.order
        cluster.train_or_wait(cluster.order)
        cluster.power_off(last)
        cluster.until(lambda: cluster.truth.members == frozenset(rest), 12.0, cluster.states)
        before = cluster.truth.published
        cluster.power_on(last)
        cluster.until(lambda: cluster.truth.members == frozenset(cluster.order), 15.0, cluster.states)
        assert cluster.truth.published == before + 1
