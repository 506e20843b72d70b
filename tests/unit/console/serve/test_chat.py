"""./motley chat: typed into a real terminal, or piped; with an endpoint of its own or by one that is running."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.inventory.read import Inventory
from console.serve import chat, client
from tests.support import pace, served, stand_ins
from tests.support.pids import is_alive
from tests.support.played_answers import RUN, install, orders
from train.errors import BadInput


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "one"
    install(found, 0.01)
    return found


@pytest.fixture
def folder(tmp_path: Path, home: Path) -> Path:
    return served.inventory(tmp_path, {"one": home})


NOBODY = "9"
"""A port at which nothing answers."""


def command(folder: Path, *words: str, port: str = NOBODY) -> list[str]:
    return [sys.executable, "-m", "console", "chat", "--inventory", str(folder), "--port", port, *words]


COMMANDS = re.compile(r"\x1b\[[?0-9;]*[a-zA-Z]")
"""By which a shell's line is drawn."""


class Terminal:
    def __init__(self, words: list[str]) -> None:
        self.keys, theirs = pty.openpty()
        self.shown = b""
        env = os.environ | {"TERM": "xterm"}
        self.process = subprocess.Popen(
            words, cwd=served.REPOSITORY, stdin=theirs, stdout=theirs, stderr=theirs, env=env, start_new_session=True,
            preexec_fn=controls_a_terminal,  # noqa: PLW1509 - nothing is locked in it
        )  # fmt: skip
        os.close(theirs)
        os.set_blocking(self.keys, False)

    def types(self, text: str) -> None:
        os.write(self.keys, text.encode())

    def read(self) -> str:
        with contextlib.suppress(OSError):
            while part := os.read(self.keys, 4096):
                self.shown += part
        return COMMANDS.sub("", self.shown.decode(errors="replace"))

    def shows(self, text: str, times: int = 1) -> None:
        pace.until(lambda: self.read().count(text) >= times, 60, self.read)

    def ends(self) -> int:
        def over() -> bool:
            self.read()
            return self.process.poll() is not None

        pace.until(over, 60, self.read)
        return self.process.returncode


def controls_a_terminal() -> None:
    """So that Ctrl-C is a signal."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


@contextlib.contextmanager
def at_a_terminal(folder: Path, *words: str) -> Iterator[Terminal]:
    found = Terminal(command(folder, RUN, *words))
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        os.close(found.keys)


@pytest.fixture
def terminal(folder: Path) -> Iterator[Terminal]:
    with at_a_terminal(folder, "--system", "Be short.", "--tokens", "5") as found:
        yield found


def messages(home: Path) -> list[list[tuple[str, str]]]:
    """Of each request the roles and contents, without what the machine has answered."""
    return [
        [(one["role"], one["content"] if one["role"] != "assistant" else "…") for one in order["messages"]]
        for order in orders(home)
        if "ask" in order
    ]


SYSTEM = ("system", "Be short.")


def test_a_conversation_that_is_typed(terminal: Terminal, home: Path) -> None:
    terminal.shows("> ")
    terminal.types("\x1b[200~one\ntwo\x1b[201~")
    terminal.shows("two")
    assert not messages(home), "a paste is not sent by its line ends"
    terminal.types("\r")
    first = [SYSTEM, ("user", "one\ntwo")]
    pace.until(lambda: messages(home) == [first], 60, terminal.read)
    terminal.shows("\n> ", times=2)
    terminal.types("and?\r")
    pace.until(lambda: messages(home)[1:] == [[*first, ("assistant", "…"), ("user", "and?")]], 60, terminal.read)
    terminal.shows("\n> ", times=3)
    terminal.types("/new\r")
    terminal.shows("forgotten")
    terminal.types("again\r")
    pace.until(lambda: messages(home)[2:] == [[SYSTEM, ("user", "again")]], 60, terminal.read)
    terminal.shows("\n> ", times=5)
    pid = int((home / "pid").read_text())
    terminal.types("\x04")
    assert terminal.ends() == 0, terminal.read()
    pace.until(lambda: not is_alive(pid), 60)


def test_ctrl_c_stops_an_answer_and_no_more(folder: Path, home: Path) -> None:
    with at_a_terminal(folder, "--tokens", "100000") as terminal:
        terminal.shows("> ")
        terminal.types("long\r")
        pace.until(lambda: len(terminal.read()) > 800, 60, terminal.read)
        terminal.types("\x03")
        terminal.shows("(stopped)")
        pace.until(lambda: any("drop" in one for one in orders(home)), 60, terminal.read)
        prompts = terminal.read().count("> ")
        terminal.types("half a word\x03")
        terminal.shows("> ", times=prompts + 1)
        terminal.types("\x04")
        assert terminal.ends() == 0, terminal.read()


def test_each_line_of_a_pipe_is_a_message(folder: Path, home: Path) -> None:
    done = subprocess.run(
        command(folder), cwd=served.REPOSITORY, input="Hi\n\nand?\n", capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert messages(home) == [[("user", "Hi")], [("user", "Hi"), ("assistant", "…"), ("user", "and?")]]
    assert all(order["temperature"] == 0.7 for order in orders(home) if "ask" in order)


def test_an_endpoint_that_is_running_is_used(folder: Path, home: Path) -> None:
    with served.served(folder, RUN) as here:
        here.says("✓ one: ")
        pid = (home / "pid").read_text()
        done = subprocess.run(
            command(folder, "--temperature", "0", port=str(here.port)), cwd=served.REPOSITORY, input="Hi\n",
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0 and "by ./motley serve" in done.stdout, done.stderr
        assert (home / "pid").read_text() == pid, "no machine has loaded the model again"
    assert messages(home) == [[("user", "Hi")]]


@pytest.mark.parametrize("says", ['{"object": "list", "data": null}', "[]", '{"data": ["llama"]}', "hello"])
def test_another_programs_server_at_that_port_is_not_taken_for_ours(says: str, tmp_path: Path) -> None:
    with stand_ins.answers(says.encode()) as port:
        assert client.running(Inventory(path=tmp_path), "", port) is None


def test_an_answer_whose_server_is_gone_is_not_taken_for_whole() -> None:
    """A server that ends closes its line, which looks like the end of an answer."""
    said: list[str] = []
    begins = stand_ins.answers(b'data: {"choices": [{"delta": {"content": "At "}}]}\n\n')
    with begins as port, pytest.raises(client.NotAnswered, match="the endpoint is gone: the answer broke off"):
        said.extend(client.Client(port, RUN).stream([{"role": "user", "content": "When?"}]))
    assert said == ["At "]


def test_bad_input_is_refused_and_starts_nothing(folder: Path, home: Path) -> None:
    with pytest.raises(BadInput, match="temperature: 3 is no number from 0 to 2"):
        chat.options("3", 0)
    done = pace.run(*command(folder, "--temperature", "hot"), cwd=served.REPOSITORY)
    assert done.returncode == 2 and "temperature: hot is no number" in done.stderr and not (home / "pid").exists()


def test_terminated_it_leaves_nothing(terminal: Terminal, home: Path) -> None:
    terminal.shows("> ")
    pid = int((home / "pid").read_text())
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.ends() == 128 + signal.SIGTERM
    pace.until(lambda: not is_alive(pid), 60)
