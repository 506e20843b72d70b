"""One loss after the other, of the kinds that cards know: a worker ends by SIGABRT, as torch's thread for NCCL ends it
where a card breaks; a machine freezes while the others wait in an exchange that they cannot leave. One of them has a
slow disk, and the worker of another saves for long."""

import itertools
import os
import random
import signal

import pytest

from tests.train.agents import Agents
from tests.train.test_staying import OPTIONS, assert_curve_is_one_processs

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
def test_no_step_is_lost(data, tmp_path, sync):
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
    assert_curve_is_one_processs(agents, agents.names, data)
