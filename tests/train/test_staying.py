"""Workers that stay while their group changes: who is whole does not start again, and the curve is one process's."""

import itertools
import os
import random
import signal
import time

import pytest

from tests.train import reference
from tests.train.agents import Agents
from train.models.model_files import model_folder

OPTIONS = reference.OPTIONS | {"max_steps": 100000, "rows_per_step": 6, "save_every": 100000}


def training(data, tmp_path, sync="ddp"):
    agents = Agents(tmp_path, OPTIONS | {"dataset": data, "sync": sync})
    agents.start()
    agents.together(*agents.names, within_s=60, step=4)  # in the second, ddp exchanges its buckets, and cannot be left
    return agents, agents.names[:2], agents.names[2]


def assert_curve_of_one_process(agents, names, data):
    losses = agents.losses(*names)
    how = {"steps": len(losses), "rows_per_step": OPTIONS["rows_per_step"], "of_steps": OPTIONS["max_steps"]}
    assert reference.largest_error(losses, reference.losses(model_folder("tiny"), data, **how)) < 1e-5


@pytest.mark.parametrize(
    ("loss", "sync"),
    [
        ("killed", "flat"),
        ("silent", "ddp"),
        pytest.param("killed", "ddp", marks=pytest.mark.long),
        pytest.param("silent", "flat", marks=pytest.mark.long),
    ],
)
def test_who_is_whole_stays_where_another_is_lost_and_comes_back(data, tmp_path, sync, loss):
    agents, stay, lost = training(data, tmp_path, sync)
    workers = {name: agents.workers(name) for name in stay}
    (gone,) = agents.workers(lost)
    if loss == "killed":
        agents.kill(lost)
    else:
        for pid in (agents.running[lost].pid, gone):
            os.kill(pid, signal.SIGSTOP)
    agents.together(*stay, within_s=40, step=agents.last_step(stay[0])["step"] + 3)
    assert {name: agents.workers(name) for name in stay} == workers, "who was whole has started again"
    if loss == "killed":
        agents.start(lost)
    else:
        for pid in (gone, agents.running[lost].pid):
            os.kill(pid, signal.SIGCONT)
    agents.together(*agents.names, within_s=40)
    assert {name: agents.workers(name) for name in stay} == workers, "who was whole has started again"
    agents.stop(within_s=20)
    assert_curve_of_one_process(agents, stay, data)


def test_the_others_train_on_while_a_newcomer_loads(data, tmp_path):
    agents, stay, lost = training(data, tmp_path)
    agents.kill(lost)
    agents.together(*stay, within_s=40)
    returned = time.time()
    agents.start(lost, program="tests/train/broken.py slow_base=6")
    agents.together(*agents.names, within_s=60)
    agents.stop(within_s=20)
    steps = [event["time"] for event in agents.steps(stay[0]) if event["time"] > returned]
    assert max(b - a for a, b in itertools.pairwise(steps)) < 4, "they have waited for it"
    joined = next(event for event in agents.members(stay[0], "joined") if event["time"] > returned)
    assert joined["time"] - returned > 6
    assert_curve_of_one_process(agents, stay, data)


def test_a_newcomer_that_cannot_load_is_tried_again_and_disturbs_nobody(data, tmp_path):
    agents, stay, lost = training(data, tmp_path)
    agents.kill(lost)
    agents.together(*stay, within_s=40)
    generation = agents.now(stay[0])["epoch"]
    agents.start(lost, program="tests/train/broken.py no_base")
    agents.wait(lambda: agents.now(lost).get("state") == "resting", 60, "it does not rest")
    failed = agents.members(lost, "failed")
    assert len(failed) == 3 and all("a game has it" in event["reason"] for event in failed)
    assert agents.now(stay[0])["epoch"] == generation and "joined" not in str(agents.members(stay[0])[-1])
    agents.stop(within_s=20)


# -- a storm -----------------------------------------------------------------------------------------------------------

LOSSES = 10
PROGRAM = "tests/train/broken.py nccl"


def abort(agents: Agents, victim: str) -> None:
    (worker,) = agents.workers(victim)
    os.kill(worker, signal.SIGABRT)


def freeze(agents: Agents, victim: str) -> None:
    frozen = [agents.running[victim].pid, *agents.workers(victim)]
    for pid in frozen:
        os.kill(pid, signal.SIGSTOP)
    agents.together(*(name for name in agents.names if name != victim), within_s=60)
    for pid in reversed(frozen):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.long
@pytest.mark.parametrize("sync", ["ddp", "flat"])
def test_no_step_is_lost_in_a_storm(data, tmp_path, sync):
    """One loss after the other, of the kinds that cards know: a worker ends by SIGABRT, as torch's thread for NCCL ends
    it where a card breaks; a machine freezes while the others wait in an exchange that they cannot leave. One of them
    has a slow disk, and the worker of another saves for long."""
    chosen = random.Random(7)
    agents = Agents(tmp_path, OPTIONS | {"dataset": data, "sync": sync})
    usual, slow_disk, slow_save = agents.names
    agents.start(usual, program=PROGRAM)
    agents.start(slow_disk, program=PROGRAM, altered="slow_disk=2")
    agents.start(slow_save, program=f"{PROGRAM}+slow_save=5")
    agents.together(*agents.names, within_s=90)
    for _ in range(LOSSES):
        chosen.choice([abort, freeze])(agents, chosen.choice(agents.names))
        agents.together(*agents.names, within_s=90, step=agents.last_step(agents.names[0])["step"] + 3)
    agents.stop(within_s=30)
    for name in agents.names:
        steps = [event["step"] for event in agents.events(name) if event["event"] == "step"]
        assert all(a < b for a, b in itertools.pairwise(steps)), f"{name} has trained a step twice"
    assert_curve_of_one_process(agents, agents.names, data)
