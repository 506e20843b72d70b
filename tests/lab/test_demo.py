"""`./motley demo` as root, on the lab: interrupted, killed without mercy, and begun again."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from lab.place import Place
from tests.lab.test_life import left_of
from tests.support import pace
from tests.support.cluster import REPOSITORY

NAME = f"r{os.getpid()}"
PLACE = Place(name=f"demo{NAME}")
COMMAND = [".venv/bin/python", "-m", "lab", "demo", "--fast"]


def started() -> subprocess.Popen[str]:
    return subprocess.Popen(
        COMMAND,
        cwd=REPOSITORY,
        env=os.environ | {"MOTLEY_LAB": NAME},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def until(process: subprocess.Popen[str], start: str) -> None:
    """And two seconds more: in the middle of what comes then."""
    assert process.stdout
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(start):
            time.sleep(2)
            return
    pytest.fail("".join(said))


@pytest.mark.long  # tests/unit/lab/test_demo.py
def test_interrupted_and_killed_it_can_begin_again(lab_allowed: None) -> None:
    stopped = started()
    until(stopped, "  machines")
    stopped.send_signal(signal.SIGINT)
    out, _ = pace.said_by(stopped)
    assert stopped.returncode == 130 and "nothing of it is left running" in out
    assert not any(left_of(PLACE).values()), "Ctrl-C leaves nothing"

    killed = started()
    until(killed, "  machines")
    killed.kill()
    killed.wait()
    assert left_of(PLACE)["namespaces"], "after a kill -9 nobody was there to take it away"

    again = started()
    until(again, "  machines")  # what the killed one left does not stand in its way
    again.send_signal(signal.SIGINT)
    pace.said_by(again)
    assert again.returncode == 130
    assert not any(left_of(PLACE).values())


@pytest.mark.long
def test_stopped_while_it_trains_it_leaves_nothing(lab_allowed: None) -> None:
    training = started()
    until(training, "started on 3 of 3 nodes")
    told = pace.now()
    training.terminate()
    time.sleep(0.05)
    training.terminate()  # make passes on what its whole group has got already
    out, _ = pace.said_by(training)
    assert training.returncode == 143 and "nothing of it is left running" in out, out
    assert "done · " not in out and pace.now() - told < 20, "it was stopped, not waited for"
    assert not any(left_of(PLACE).values())
