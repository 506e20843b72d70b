"""`./motley status | head -3`: a reader that leaves early ends nothing with a traceback, and stops no work."""

import io
import os
import re
import subprocess
import sys

import pytest
from rich.console import Console

from console import __main__, text_layout
from console.playbook.playbook_progress import Progress
from console.playbook.playbook_view import View
from plugins.callback import calm
from tests.support import ROOT, pace
from train import safe_stdio
from train.runlog.events import ProgressLine


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


@pytest.mark.parametrize(
    ("command", "unbuffered"),
    [
        ("console --help", ""),
        ("console check --inventory inventory/loopback", "1"),
        ("console status --inventory inventory/loopback", ""),
        ("lab faults", ""),
        ("lab --help", "1"),
        ("train --help", ""),
        ("train trace --help", "1"),
        ("tests.bench --help", ""),
    ],
)
def test_what_nobody_reads_is_no_failure(command, unbuffered):
    code, said, _ = unread("-m", *command.split(), PYTHONUNBUFFERED=unbuffered)
    assert said == ""
    assert code == 0


def test_a_failure_stays_one_when_nobody_reads():
    code, said, _ = unread("-m", "console", "check", "--inventory", "inventory/nowhere")
    assert code == 2 and "inventory/nowhere: it does not exist" in said


LOGS = """
import subprocess, sys
from pathlib import Path
from console import __main__
from console.infra.machines.node import LocalNode
def logs(node, *_, **__):
    says = ["yes", "a line"] if node.name == "gpu-master" else ["sleep", "60"]
    return subprocess.Popen(says, stdout=subprocess.PIPE, start_new_session=True)
LocalNode.logs = logs
sys.argv = ["console", "logs", "--inventory", "inventory/loopback"]
sys.exit(__main__.main())
"""
FOLLOW = """
import sys
from console import __main__, run_commands
from console.watch import follow_view
class Endless:
    def __init__(self, nodes, view, tell, tick):
        self.tell, self.tick = tell, tick
    def follow(self, **_):
        while True:
            self.tell("a line")
            self.tick()
follow_view.Follower = Endless
view = run_commands.RunView(run_commands.RunState(), [])
run_commands.follow = lambda inventory, **_: run_commands.show([], view)
sys.argv = ["console", "follow", "--inventory", "inventory/loopback"]
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(("program", "first"), [(LOGS, b"gpu-master    a line\n"), (FOLLOW, b"a line\n")])
def test_what_shows_without_end_ends_with_its_reader(program, first):
    """Nobody waits for a node that is silent; a run that is followed is left alone."""
    code, said, seconds = unread("-c", program, first=first)
    assert (code, said) == (0, "")
    assert seconds < 20


HOSTILE = "héllo\t\x1b]52;c;ZXZpbA==\x07 \x9b2J\x1b[31mred\x1b[0m \x1b[1A\u202eup\ud800\r"
SHOWN = "héllo\t�]52;c;ZXZpbA==� �2Jred �[1A�up�\n"


@pytest.mark.parametrize("verb", __main__.ACTS)
def test_no_verb_shows_what_commands_a_terminal(verb, monkeypatch, capsys):
    def says(*_):
        text_layout.say(HOSTILE)
        print(HOSTILE, file=sys.stderr)
        text_layout.say(HOSTILE)
        sys.stdout.writelines([HOSTILE])
        return 0

    monkeypatch.setattr(__main__, "act", says)
    monkeypatch.setattr(__main__.interrupt, "listen_to_sigterm", lambda: None)
    monkeypatch.setenv("ANSIBLE_CONFIG", "ansible.cfg")
    needed = {"wake": ["a"], "torchrun": ["s.py"], "rent": [], "pause": ["a"]}
    monkeypatch.setattr(sys, "argv", ["motley", verb, *needed.get(verb, [])])
    assert __main__.main() == 0
    said = capsys.readouterr()
    assert said.out == 2 * f"{SHOWN}\n" + SHOWN and said.err == f"{SHOWN}\n"


def test_our_own_line_moves_the_cursor_and_what_stands_in_it_does_not(monkeypatch, capsys):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with safe_stdio.may_be_unread():
        text_layout.redraw(HOSTILE)
        ProgressLine(sys.stdout, 9).say(HOSTILE)
    assert capsys.readouterr().out == f"\r\x1b[2K{SHOWN}\r\x1b[2K{SHOWN}"


def test_a_playbooks_words_command_no_terminal(monkeypatch):
    out, progress = io.StringIO(), Progress()
    monkeypatch.setattr("console.playbook.playbook_view.phase_line", lambda *_, **__: HOSTILE)
    monkeypatch.setattr(progress, "finished", [(None, "")])
    View(Console(file=out, force_terminal=True, highlight=False), progress).update()
    assert "]52" in out.getvalue() and not re.search(r"\x1b\]|\x9b|\x07", out.getvalue())


def test_a_calm_play_commands_no_terminal(monkeypatch):
    said: list[str] = []
    callback = calm.CallbackModule.__new__(calm.CallbackModule)
    callback._display = type("Display", (), {"display": lambda _, text: said.append(text)})()
    callback._say(HOSTILE)
    assert said == [SHOWN]


@pytest.mark.parametrize("command", ["console plan --model qwen3-8b --cards 24,6", "lab --help", "train --help"])
def test_a_terminal_that_knows_only_ascii_gets_all_words(command: str) -> None:
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    command_line = [sys.executable, "-m", *command.split()]
    done = subprocess.run(command_line, cwd=ROOT, env=environment, capture_output=True, check=False)
    assert done.returncode == 0 and done.stderr == b"" and done.stdout.isascii()
