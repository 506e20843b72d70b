"""Ctrl-C and SIGTERM while Ansible works: it is stopped, ends in order, and nothing of it is left on this machine.

What works for a call bears its mark (processes.py). What works on a node ends there by itself.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from console import processes

MARK = "MOTLEY_CALL"
INSIST_S = 1.0
"""Python drops a Ctrl-C that comes while it starts a process; after this time Ansible gets another."""
GRACE_S = 5.0
"""How long Ansible may take to end by itself, before it is ended."""
CODE = 130
KEPT = "[mux]"
"""An SSH connection that is kept open for the next call."""


class Halfway(KeyboardInterrupt):
    """Ctrl-C after something was changed."""


@contextlib.contextmanager
def changing() -> Iterator[None]:
    """Whoever stops it is not told that nothing was changed."""
    try:
        yield
    except KeyboardInterrupt:
        raise Halfway from None


def listen_to_sigint() -> None:
    """All is loaded: from here on a Ctrl-C is an exception (console/__init__.py). One that is ignored stays so."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def listen_to_sigterm() -> None:
    """It is Ctrl-C from afar."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def new_mark() -> str:
    return f"{os.getpid()}-{time.monotonic_ns()}"


class Watch:
    """While it is entered, the first signal asks our children to end, and the second ends everything at once."""

    def __init__(self) -> None:
        self.mark = new_mark()
        self.asked_at = 0.0
        self.insisted = False

    @property
    def asked(self) -> bool:
        return self.asked_at > 0

    def overdue(self) -> bool:
        """Asked again and again while Ansible works."""
        waited_s = time.monotonic() - self.asked_at if self.asked else 0.0
        if waited_s > INSIST_S and not self.insisted:
            self.insisted = True
            processes.signal_all(children(self.mark), signal.SIGINT)
        return waited_s > GRACE_S

    def _take(self, *_: int | FrameType | None) -> None:
        if self.asked:
            self.asked_at -= GRACE_S
        else:
            self.asked_at = time.monotonic()
            processes.signal_all(children(self.mark), signal.SIGINT)

    def __enter__(self) -> Watch:
        self.before = {number: signal.signal(number, self._take) for number in (signal.SIGINT, signal.SIGTERM)}
        os.environ[MARK] = self.mark
        return self

    def __exit__(self, *_: object) -> None:
        del os.environ[MARK]
        if self.asked:
            end_all(self.mark)
        for number, handler in self.before.items():
            signal.signal(number, handler)


def end_in_order(process: subprocess.Popen[bytes], mark: str) -> int:
    """Ends a child; returns its exit code. A terminal has sent it the Ctrl-C as well, a SIGTERM came to us alone."""
    try:
        for patience_s in (INSIST_S, GRACE_S):
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(patience_s)
            process.send_signal(signal.SIGINT)
        process.kill()
        return process.wait()
    finally:
        end_all(mark)


def end_all(mark: str) -> None:
    processes.end(f"{MARK}={mark}", spare=KEPT)


def marked(mark: str) -> list[int]:
    return processes.alive(f"{MARK}={mark}", spare=KEPT)


def children(mark: str) -> list[int]:
    """The processes with this mark that we have started ourselves."""
    return [pid for pid in marked(mark) if _parent(pid) == os.getpid()]


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0
