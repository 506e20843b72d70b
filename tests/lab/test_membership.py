"""Machines are lost and come back while they train, over the lab's network. Each test leaves the trio training."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lab import base, faults
from tests.support import cluster as clusters
from tests.support import pace
from tests.support.training import Split, Training, training_on

MASTER, LAPTOP, OLD = "gpu-master", "gpu-worker-1", "gpu-worker-2"
LOST_S, BACK_S, BEGUN_S = 45, 60, 180
"""Thrice what machines of their own need: three share one here, and a hang shows all the same."""
STOPPED_S = 8
"""All leave by themselves, and soon: a machine that goes down does not wait for ever."""


@pytest.fixture(scope="module")
def machines(lab_allowed: None) -> Iterator[Training]:
    """Three hosts with 1 + 2 + 1 processes."""
    with clusters.hosts(f"m{os.getpid()}", "trio", base.default_suite(), ["train"]) as lab:
        yield Training(lab, {LAPTOP: 2})


@pytest.fixture(scope="module")
def trio(machines: Training) -> Training:
    """They train for ever."""
    began = time.time()
    machines.launch("faults", max_steps=100000)
    machines.together(*machines.names, since=began, within_s=BEGUN_S)
    return machines


def rest_of(training: Training, victim: str) -> list[str]:
    return [name for name in training.names if name != victim]


def waits(training: Training, name: str) -> None:
    """The other side may train again before this one knows that it is cut off."""

    def waiting() -> bool:
        return training.now(name)["state"] == "waiting" and not training.worker_pids(name)

    training.wait(waiting, LOST_S, f"{name} does not wait for the others")


@pytest.mark.long  # power cuts are in the story
@pytest.mark.parametrize(
    ("fault", "victim"),
    [
        ("freeze", LAPTOP),  # power-cut, of both kinds, is in the story
        pytest.param("cable-pull", OLD, marks=pytest.mark.long),  # in test_run_life.py as its owner sees it
        pytest.param("suspend", MASTER, marks=pytest.mark.long),
    ],
)
def test_a_machine_is_lost_and_comes_back(trio: Training, fault: str, victim: str) -> None:
    rest, host = rest_of(trio, victim), trio.host(victim)
    began = time.time()
    faults.inject(trio.lab, host, fault)
    lost = time.time() + pace.seconds(1)  # what was on its way may still arrive
    lost_s = trio.together(*rest, since=began, within_s=LOST_S)
    assert trio.repeated(rest[0], began) <= 10
    cut_off = time.time()
    faults.fix(trio.lab, host, fault)
    host.wait_until_up()
    back = time.time()
    back_s = trio.together(*trio.names, since=back, within_s=BACK_S)
    print(f"{fault} {victim}: lost {lost_s:.1f} s, back {back_s:.1f} s")
    alone = [e for e in trio.events(victim) if e["event"] == "step" and lost < e["time"] < cut_off]
    assert not alone, "it trained on while it was cut off"
    assert any(victim in event["nodes"] for event in trio.members(rest[0], "lost") if event["time"] > began)


@pytest.mark.long  # tests/train/test_agent.py
def test_a_worker_that_runs_out_of_memory_is_replaced(trio: Training) -> None:
    """The kernel picks the process with the highest score: it must be the worker, never the agent."""
    host = trio.host(OLD)
    pid = trio.worker_pids(OLD)[0]
    agent = host.run("systemctl", "show", "-P", "MainPID", "motley-run").strip()
    scores = [int(host.run("cat", f"/proc/{p}/oom_score_adj")) for p in (pid, agent)]
    assert scores[0] >= scores[1] + 300
    host.run("kill", "-9", pid)
    began = time.time()  # a step may still be made while the order is on its way
    trio.together(*trio.names, since=began, within_s=LOST_S)
    assert "SIGKILL" in trio.members(OLD, "failed")[-1]["reason"]
    assert host.run("systemctl", "show", "-P", "MainPID", "motley-run").strip() == agent


@pytest.mark.long  # tests/train/test_agent.py
def test_an_agent_that_is_killed_leaves_no_orphan_and_is_started_again(trio: Training) -> None:
    host = trio.host(LAPTOP)
    before = trio.worker_pids(LAPTOP)
    host.run("systemctl", "kill", "-s", "KILL", "--kill-whom=main", "motley-run")
    trio.wait(lambda: not set(before) & set(trio.worker_pids(LAPTOP)), LOST_S, "its workers live on")
    began = time.time()
    trio.together(*trio.names, since=began, within_s=LOST_S)


@pytest.mark.long  # tests/sim
def test_a_stalled_worker_is_found_and_named(trio: Training) -> None:
    began = time.time()

    def stalled() -> list[dict[str, Any]]:
        return [e for name in trio.names for e in trio.members(name, "stalled") if e["time"] > began]

    trio.host(LAPTOP).run("kill", "-STOP", trio.worker_pids(LAPTOP)[0])
    trio.wait(stalled, 75, "nobody says that it is stalled")
    trio.together(*trio.names, since=stalled()[0]["time"], within_s=LOST_S)
    assert len(stalled()) == 1 and f"{LAPTOP} (a worker is stopped)" in stalled()[0]["reason"], trio.tell()


@pytest.mark.long  # tests/sim cuts it; test_run_life.py loses one and has it back
def test_of_a_cut_network_the_larger_side_trains(trio: Training) -> None:
    """The head alone on one side: the other two are the majority, and it says why it waits."""
    began = time.time()
    with Split(trio.lab, [MASTER]):
        cut = time.time() + pace.seconds(1)
        trio.together(LAPTOP, OLD, since=began, within_s=LOST_S)
        waits(trio, MASTER)
        assert "1 of 3 are no majority" in trio.members(MASTER, "waiting")[-1]["reason"]
        assert trio.steps_between(MASTER, cut, time.time()) == 0
    trio.together(*trio.names, since=time.time(), within_s=BACK_S)


@pytest.mark.long  # test_run_life.py and the demo lose machines, tests/sim plays it
def test_story(machines: Training) -> None:
    """Worker and head die and come back, all is stopped and resumed on two nodes: the curve of one machine."""
    story, steps = machines, 500
    assert story.stop() < STOPPED_S
    began = time.time()
    story.launch("story", max_steps=steps, token="told")
    story.together(*story.names, since=began, within_s=BEGUN_S)
    for victim in (LAPTOP, MASTER):
        began = time.time()
        faults.inject(story.lab, story.host(victim), "power-cut")
        story.together(*rest_of(story, victim), since=began, within_s=LOST_S)
        assert story.repeated(OLD, began) <= 10
        faults.fix(story.lab, story.host(victim), "power-cut")
        story.together(*story.names, since=time.time(), within_s=BACK_S)
    assert story.stop() < STOPPED_S
    assert story.last_step(OLD)["step"] < steps, "it was over before it was stopped"
    story.launch("story", nodes=[MASTER, OLD], max_steps=steps, token="resumed")
    story.wait(lambda: all(story.now(n).get("state") == "done" for n in (MASTER, OLD)), 120, "it is not done")
    found = story.proof()
    assert found["steps"] == steps and found["whole"], "a step was lost or trained twice"
    assert found["rows"], "rows were lost or trained twice"
    assert found["error"] < 1e-4 and found["worlds"] == [2, 3, 4]
    for name in (MASTER, OLD):
        assert story.host(name).run("systemctl", "show", "-P", "Result", "motley-run").strip() == "success"


@pytest.mark.long  # tests/sim plays it
def test_two_nodes_with_a_cut_cable(machines: Training) -> None:
    """Only the head's side goes on; the other waits, says why, and joins again."""
    pair = machines
    assert pair.stop() < STOPPED_S
    began = time.time()
    pair.launch("pair", nodes=[MASTER, LAPTOP], max_steps=100000)
    pair.together(MASTER, LAPTOP, since=began, within_s=BEGUN_S)
    began = time.time()
    with Split(pair.lab, [LAPTOP]):
        cut = time.time() + pace.seconds(1)
        pair.together(MASTER, since=began, within_s=LOST_S)
        waits(pair, LAPTOP)
        assert f"the one with {MASTER} continues" in pair.members(LAPTOP, "waiting")[-1]["reason"]
        assert pair.steps_between(LAPTOP, cut, time.time()) == 0
    pair.together(MASTER, LAPTOP, since=time.time(), within_s=BACK_S)
    assert pair.stop() < STOPPED_S


@pytest.mark.long  # tests/sim plays it
def test_five_nodes_cut_three_to_two(lab_allowed: None) -> None:
    with training_on(f"f{os.getpid()}", "five") as five:
        three, two = five.names[2:], five.names[:2]
        began = time.time()
        five.launch("five", max_steps=100000)
        five.together(*five.names, since=began, within_s=BEGUN_S)
        began = time.time()
        with Split(five.lab, two):
            cut = time.time() + pace.seconds(1)
            five.together(*three, since=began, within_s=2 * LOST_S)
            for name in two:
                waits(five, name)
                assert five.steps_between(name, cut, time.time()) == 0
        five.together(*five.names, since=time.time(), within_s=2 * BACK_S)
        assert five.stop() < STOPPED_S
