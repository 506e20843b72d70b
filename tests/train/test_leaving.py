"""SIGTERM: save, then leave within five seconds, whatever the process is doing."""

import signal
import sys
import time

import pytest

from tests.support import pace
from tests.train import cluster
from tests.train.agents import ENDLESS
from train.engine import checkpoint


@pytest.fixture
def options(data) -> dict:
    return ENDLESS | {"dataset": data, "save_every": 100000, "sync": "auto"}


def test_sigterm_saves_the_last_finished_step_and_leaves(options, tmp_path):
    run = cluster.Cluster(tmp_path, options, 2)
    run.reaches(8)
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    codes = run.wait(5)
    assert set(codes) <= {143, 1}, "1: a peer had left before the signal came"
    last = run.events()[-1]
    assert last["event"] in ("stopped", "failed")
    assert checkpoint.steps(run.checkpoints())[-1] >= 7


def test_a_process_that_waits_for_a_frozen_peer_can_still_be_stopped(options, tmp_path):
    """Its main thread sits in an all-reduce that never ends, where Python runs no signal handler."""
    run = cluster.Cluster(tmp_path, options, 2)
    run.reaches(8)
    run.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(1)  # by then it waits
    run.processes[0].send_signal(signal.SIGTERM)
    assert pace.ended(run.processes[0], 5, run.said) == 143
    run.processes[1].kill()
    run.wait()
    step = checkpoint.steps(run.checkpoints())[-1]
    assert step >= 7 and checkpoint.damage(run.checkpoints() / f"step-{step}") == ""
    assert run.events()[-1] | {"time": 0} == {"event": "stopped", "time": 0, "step": step, "reason": "SIGTERM"}


@pytest.mark.parametrize("flag", ["--help", "--learnig-rate=1"])
def test_help_and_mistakes_do_not_wait_for_torch(flag):
    command = [sys.executable, "-X", "importtime", "-m", "train", "run", flag]
    done = pace.run(*command, cwd=cluster.ROOT)
    read = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert "train.plan.settings.read_settings" in read and "torch" not in read


def test_a_sick_card_does_not_hide_what_made_it_sick(options, tmp_path):
    """Nothing can be saved from it any more; the first cause is what a person needs."""
    run = cluster.Cluster(tmp_path, options, changed="sick_card")
    assert run.wait() == [1]
    failed = run.events()[-1]
    assert failed["event"] == "failed" and "the launch timed out" in failed["message"]
    assert "unspecified launch failure" in run.events(kind="warning")[-1]["message"]
    assert "step 1: AcceleratorError: CUDA error: the launch timed out" in run.said()
