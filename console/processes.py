"""Processes that bear a mark in their environment: all that was started for something, in whatever session it lives.

Ansible puts itself, each of its workers and their SSH clients into sessions of their own, so neither a process group
nor a parent leads to all of them; and what belonged to a program that was killed is nobody's child.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

HARDER = (signal.SIGTERM, signal.SIGKILL)
EXEC_S, EXEC_LOOKS = 0.2, 5
"""Longer than the moment, amid exec, in which a process has no environment to show; both, where a look takes long."""


def alive(mark: str, *, spare: str = "") -> list[int]:
    """Other processes with `NAME=value` in their environment, but for those with `spare` on their command line."""
    found, looking = [], list(Path("/proc").glob("[0-9]*"))
    patient_until: dict[Path, float] = {}
    looks = 0
    while looking:
        amid, looks = [], looks + 1
        for folder in looking:
            with contextlib.suppress(OSError):  # ended, or somebody else's, or the kernel's own
                (folder / "exe").readlink()
                now = time.monotonic()
                environment = (folder / "environ").read_bytes()
                until = patient_until.setdefault(folder, now + EXEC_S)
                if not environment and (now < until or looks < EXEC_LOOKS):
                    amid.append(folder)
                is_ours = mark.encode() in environment.split(b"\0")
                if is_ours and not (spare and spare.encode() in (folder / "cmdline").read_bytes()):
                    found.append(int(folder.name))
        if looking := amid:
            time.sleep(0.001)
    return [pid for pid in found if pid != os.getpid()]


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def end(mark: str, *, spare: str = "", signals: Sequence[signal.Signals] = HARDER, patience_s: float = 2) -> list[int]:
    """Sends each signal in turn, to those too that start meanwhile; returns who did not end."""
    left = alive(mark, spare=spare)
    for number in signals:
        deadline = time.monotonic() + patience_s
        signalled: set[int] = set()
        while left and time.monotonic() < deadline:
            signal_all(sorted(set(left) - signalled), number)
            signalled.update(left)
            time.sleep(0.05)
            left = alive(mark, spare=spare)
    return left


def each_line(process: subprocess.Popen[bytes], take: Callable[[bytes], object]) -> threading.Thread:
    """Hands on each line of its output, with the line break, from a thread; an empty one is the end."""

    def read() -> None:
        assert process.stdout
        for line in process.stdout:
            take(line)
        take(b"")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def end_group(process: subprocess.Popen[Any], *, patience_s: float = 5) -> None:
    """Ends a process that has a session of its own, and all in it: SIGTERM, and SIGKILL where that is not heeded."""
    for number in HARDER:
        if process.poll() is None:
            os.killpg(process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(patience_s)
