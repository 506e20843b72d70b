"""SIGTERM: save, then leave within five seconds, whatever the process is doing."""

import signal
import sys
import time

import pytest

from tests.support import pace
from tests.train import cluster
from train.engine import checkpoint

OPTIONS = {"model": "tiny", "max_steps": 100000, "rows_per_step": 4, "lora_r": 4, "save_every": 100000}


def saved_steps(run: cluster.Cluster, rank: int) -> list[int]:
    return checkpoint.steps(run.node_home(rank) / "models/checkpoints/run")


def test_sigterm_saves_the_last_finished_step_and_leaves(tmp_path):
    run = cluster.Cluster(tmp_path, {**OPTIONS, "dataset": cluster.make_rows(tmp_path / "data", 20, 2)}, 2)
    run.reaches(8)
    for process in run.processes:
        process.send_signal(signal.SIGTERM)
    codes = run.wait(5)
    assert set(codes) <= {143, 1}, "1: a peer had left before the signal came"
    last = run.events()[-1]
    assert last["event"] in ("stopped", "failed")
    assert saved_steps(run, 0)[-1] >= 7


def test_a_process_that_waits_for_a_frozen_peer_can_still_be_stopped(tmp_path):
    """Its main thread sits in an all-reduce that never ends, where Python runs no signal handler."""
    run = cluster.Cluster(tmp_path, {**OPTIONS, "dataset": cluster.make_rows(tmp_path / "data", 20, 2)}, 2)
    run.reaches(8)
    run.processes[1].send_signal(signal.SIGSTOP)
    time.sleep(1)  # by then it waits
    run.processes[0].send_signal(signal.SIGTERM)
    assert pace.ended(run.processes[0], 5, run.said) == 143
    run.processes[1].kill()
    run.wait()
    step = saved_steps(run, 0)[-1]
    assert step >= 7 and checkpoint.damage(run.node_home(0) / f"models/checkpoints/run/step-{step}") == ""
    assert run.events()[-1] | {"time": 0} == {"event": "stopped", "time": 0, "step": step, "reason": "SIGTERM"}


@pytest.mark.parametrize("flag", ["--help", "--learnig-rate=1"])
def test_help_and_mistakes_do_not_wait_for_torch(flag):
    command = [sys.executable, "-X", "importtime", "-m", "train", "run", flag]
    done = pace.run(*command, cwd=cluster.ROOT)
    read = [line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")]
    assert "train.plan.settings.config" in read and "torch" not in read


def test_a_sick_card_does_not_hide_what_made_it_sick(tmp_path):
    """Nothing can be saved from it any more; the first cause is what a person needs."""
    program = ["tests/train/broken.py", "sick_card"]
    run = cluster.Cluster(tmp_path, {**OPTIONS, "dataset": cluster.make_rows(tmp_path / "data", 20, 2)}, 1, program)
    assert run.wait() == [1]
    failed = run.events()[-1]
    assert failed["event"] == "failed" and "the launch timed out" in failed["message"]
    assert "unspecified launch failure" in [e["message"] for e in run.events() if e["event"] == "warning"][-1]
    assert "step 1: AcceleratorError: CUDA error: the launch timed out" in run.said()
