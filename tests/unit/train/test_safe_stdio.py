"""`make status | head -3`: a reader that leaves early ends nothing with a traceback, and stops no work."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pace

ROOT = Path(__file__).parents[3]


def unread(*command: str, first: bytes = b"", **environment: str) -> tuple[int, str, float]:
    """Exit code, what stderr says, and seconds, of a program whose reader leaves after these first words."""
    reader, writer = os.pipe()
    began = pace.now()
    with subprocess.Popen(
        [sys.executable, *command], cwd=ROOT, stdout=writer, stderr=subprocess.PIPE, env=os.environ | environment
    ) as program:
        os.close(writer)
        heard = b""
        while len(heard) < len(first):
            part = os.read(reader, len(first) - len(heard))
            assert part, program.communicate()[1].decode()
            heard += part
        os.close(reader)
        _, said = pace.said_by(program)
    assert heard == first
    return program.returncode, said.decode(), pace.now() - began


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    "command",
    [
        "console --help",
        "console check --inventory inventory/loopback",
        "console status --inventory inventory/loopback",
        "console runs --inventory inventory/loopback",
        "lab --help",
        "lab faults",
        "train --help",
        "train plan --help",
        "tests.bench --help",
    ],
)
def test_what_nobody_reads_is_no_failure(command: str, unbuffered: str) -> None:
    code, said, _ = unread("-m", *command.split(), PYTHONUNBUFFERED=unbuffered)
    assert said == ""
    assert code == 0


def test_a_failure_stays_one_when_nobody_reads() -> None:
    code, said, _ = unread("-m", "console", "check", "--inventory", "inventory/nowhere")
    assert code == 2 and "no machines are described yet" in said


LOGS = """
import subprocess, sys
from pathlib import Path
from console import __main__
from console.infra.local import LocalNode
def logs(node, *_, **__):
    says = ["yes", "a line"] if node.name == "gpu-master" else ["sleep", "60"]
    return subprocess.Popen(says, stdout=subprocess.PIPE, start_new_session=True)
LocalNode.logs = logs
sys.argv = ["console", "logs", "--inventory", "inventory/loopback"]
sys.exit(__main__.main())
"""
FOLLOW = """
import sys
from console import __main__, run_commands, live_view
class Endless:
    def __init__(self, nodes, view, tell, tick, notifier):
        self.tell, self.tick = tell, tick
    def follow(self, **_):
        while True:
            self.tell("a line")
            self.tick()
live_view.Follower = Endless
view = run_commands.RunView(run_commands.RunState(), [])
__main__.ACTS["follow"] = lambda inventory, **_: run_commands.show([], view)
sys.argv = ["console", "follow", "--inventory", "inventory/loopback"]
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(("program", "first"), [(LOGS, b"gpu-master    a line\n"), (FOLLOW, b"a line\n")])
def test_what_shows_without_end_ends_with_its_reader(program: str, first: bytes) -> None:
    """Nobody waits for a node that is silent; a run that is followed is left alone."""
    code, said, seconds = unread("-c", program, first=first)
    assert (code, said) == (0, "")
    assert seconds < 20
