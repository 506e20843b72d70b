"""`make demo` as root, on the lab: interrupted, killed without mercy, and begun again."""

from __future__ import annotations

import os
import signal
import subprocess
import time

import pytest

from lab.place import Place
from tests.lab.test_life import left_of
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


def until_its_end(process: subprocess.Popen[str], timeout_s: float) -> str:
    try:
        out, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.terminate()  # it takes its lab away
        out, _ = process.communicate(timeout=60)
        pytest.fail(f"not at its end after {timeout_s:g} s:\n{out}")
    return out


def until(process: subprocess.Popen[str], start: str) -> None:
    """And two seconds more."""
    assert process.stdout
    said = []
    for line in process.stdout:
        said.append(line)
        if line.startswith(start):
            time.sleep(2)
            return
    pytest.fail("".join(said))


@pytest.mark.alone
def test_interrupted_and_killed_it_can_begin_again(lab_allowed: None) -> None:
    stopped = started()
    until(stopped, "  machines")
    stopped.send_signal(signal.SIGINT)
    out = until_its_end(stopped, 60)
    assert stopped.returncode == 130 and "nothing of it is left running" in out
    assert not any(left_of(PLACE).values()), "Ctrl-C leaves nothing"

    killed = started()
    until(killed, "  machines")
    killed.kill()
    killed.wait()
    assert left_of(PLACE)["namespaces"], "after a kill -9 nobody was there to take it away"

    again = started()  # what the killed one left does not stand in its way
    until(again, "started on 3 of 3 nodes")
    told = time.monotonic()
    again.terminate()
    time.sleep(0.05)
    again.terminate()  # make passes on what its whole group has got already
    out = until_its_end(again, 60)
    assert again.returncode == 143 and "nothing of it is left running" in out, out
    assert "done · " not in out and time.monotonic() - told < 20, "it was stopped, not waited for"
    assert not any(left_of(PLACE).values())
