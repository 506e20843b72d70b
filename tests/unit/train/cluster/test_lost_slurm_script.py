"""What the nodes that are left do for a job whose script is gone: with an agent that is told to leave, and a Slurm of
two commands that note what they are asked for."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import ROOT, pace
from tests.support.stand_ins import program

PARENT = """
import os, sys
from pathlib import Path
from train.cluster import lost_slurm_script as own
own.LOOK_S, own.LOST_S, own.WAIT_S, own.APART_S = 0.05, 1.0, 0.5, 0.1
folder, ended, agent = Path(sys.argv[1]), sys.argv[2] == "ended", [sys.executable, "-c", sys.argv[3]]
node = own.Node(1, os.environ, folder / "agent.json", lambda: ended)
sys.exit(own.run_agent(agent, node, own.Beat(folder / own.BEAT)))
"""
AGENT = """
import signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: sys.exit(7))
print("up", flush=True)
time.sleep(600)
"""


class Node:
    def __init__(self, folder: Path) -> None:
        self.folder, self.beating = folder, True
        self.process: subprocess.Popen[str] | None = None
        for name in ("scancel", "scontrol"):
            program(folder / name, f'#!/bin/sh\necho {name} "$@" >>{folder}/asked\n')
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        while self.beating:
            (self.folder / "script.beat").write_text(str(time.time_ns()))
            time.sleep(0.1)

    def loses_script(self) -> None:
        self.beating = False
        self.thread.join()

    def says(self, state: str) -> None:
        (self.folder / "agent.json").write_text(json.dumps({"state": state, "since": time.time() - 60}))

    def starts(self, agent: str, *, ended: bool = False, **more: str) -> subprocess.Popen[str]:
        path = {"PATH": f"{self.folder}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT), "SLURM_JOB_ID": "7"}
        words = [sys.executable, "-c", PARENT, str(self.folder), "ended" if ended else "goes on", agent]
        self.process = subprocess.Popen(
            words, env=os.environ | path | more, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        return self.process

    @property
    def asked(self) -> str:
        file = self.folder / "asked"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.beating = False
    if made.process and made.process.poll() is None:
        os.killpg(made.process.pid, 9)


def ends(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=pace.seconds(30))
    return process.returncode, said


def test_while_the_script_is_there_it_sees_to_everything(node):
    node.says("waiting")
    process = node.starts(AGENT)
    assert process.stdout.readline() == "up\n"
    time.sleep(2.5)
    assert process.poll() is None
    process.terminate()
    assert ends(process) == (128 + 15, "") and not node.asked


def test_a_run_that_goes_on_without_its_script_is_left_alone_until_it_ends(node):
    node.says("training")
    node.loses_script()
    process = node.starts("import time; time.sleep(3)", ended=True)
    assert ends(process) == (0, "")
    assert node.asked == "scancel 7\n"


@pytest.mark.parametrize(
    ("state", "leave_in_s", "why"),
    [("waiting", None, "too few nodes are left to go on"), ("training", 2, "its time is nearly over")],
)
def test_it_is_queued_again_where_it_cannot_go_on(node, state, leave_in_s, why):
    node.says(state)
    more = {} if leave_in_s is None else {"MOTLEY_LEAVE_AT": str(int(time.time()) + leave_in_s)}
    process = node.starts(AGENT, **more)
    assert process.stdout.readline() == "up\n"
    node.loses_script()
    code, said = ends(process)
    assert code == 7, "its agent was told, so that it saves"
    assert said == f"the script of this job is gone with its node, and {why}: queued again\n"
    assert node.asked == "scontrol requeue 7\n"
