"""Waits at this machine's pace: for a state, with a limit in seconds of an idle machine.

`now()` is a clock that runs slower while the machine is slower, because others compute on it or because it is an old
one. So a limit of 60 s is a minute on an idle machine and ten where everything takes ten times as long, also when that
begins in the middle of the wait. Where the product promises a time, a test gives it `seconds` of that machine.
"""

from __future__ import annotations

import math
import os
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

HANG_S = 600.0
"""For what only has to end: long enough for everything that works."""
MEASURED_EVERY_S = 2.0
MOST = 20.0
WORK, WORK_S, PROBE_S = 500_000, 0.007, 0.010
"""What a probe computes; its processor time and its whole time, with a process started, on an idle machine of 2026."""
Found = TypeVar("Found")
Text = TypeVar("Text", str, bytes)


class Process(Protocol):
    def poll(self) -> int | None: ...


def measured() -> float:
    """How many times as long as on an idle machine things take at this moment."""
    wall, cpu = time.perf_counter(), time.thread_time()
    sum(range(WORK))
    own_speed = (time.thread_time() - cpu) / WORK_S
    subprocess.run(["true"], check=True)
    felt = (time.perf_counter() - wall) / PROBE_S
    return min(MOST, max(1.0, felt, own_speed * crowd(Path("/proc/loadavg").read_text(), _cores())))


def crowd(loadavg: str, cores: int) -> float:
    """Who wants to compute, by processor: over the last minute or now, whichever is more."""
    minute, _, _, now, _ = loadavg.split()
    return max(float(minute), int(now.split("/")[0])) / cores


def _cores() -> int:
    return len(os.sched_getaffinity(0))


class Clock:
    def __init__(self, measure: Callable[[], float] = measured, wall: Callable[[], float] = time.monotonic) -> None:
        self._measure, self._wall, self._lock = measure, wall, threading.Lock()
        self.slowness, self._at, self._until_then, self._shown = measure(), wall(), 0.0, 0.0

    def now(self) -> float:
        with self._lock:
            since_s = self._wall() - self._at
            if since_s >= MEASURED_EVERY_S:
                before, self.slowness = self.slowness, self._measure()
                self._at += since_s
                self._until_then += since_s / max(before, self.slowness)
                since_s = 0.0
            self._shown = max(self._shown, self._until_then + since_s / self.slowness)
            return self._shown


CLOCK = Clock()


def now() -> float:
    return CLOCK.now()


def seconds(of_an_idle_machine: float) -> int:
    """As many as that is here and now."""
    now()
    return math.ceil(of_an_idle_machine * CLOCK.slowness)


def until(
    holds: Callable[[], Found], limit_s: float, trouble: str | Callable[[], str] = "", *, every_s: float = 0.1
) -> Found:
    """Waits for it, and returns it; `trouble` is what the test says where it never comes."""
    end, began = now() + limit_s, time.monotonic()
    while not (found := holds()):
        if now() >= end:
            said = trouble() if callable(trouble) else trouble or "it did not happen"
            pace = f"{time.monotonic() - began:.0f} s here, {limit_s:g} s of an idle machine"
            raise AssertionError(f"not within {pace}: {said}")
        time.sleep(every_s)
    return found


def ended(process: Process, limit_s: float = HANG_S, trouble: str | Callable[[], str] = "it does not end") -> int:
    """Its exit status."""
    until(lambda: process.poll() is not None, limit_s, trouble, every_s=0.02)
    code = process.poll()
    assert code is not None
    return code


def said_by(process: subprocess.Popen[Text], limit_s: float = HANG_S) -> tuple[Text, Text]:
    """All that it still says, to its end."""
    end = now() + limit_s
    while True:
        try:
            return process.communicate(timeout=MEASURED_EVERY_S)
        except subprocess.TimeoutExpired:
            assert now() < end, f"it does not end within {limit_s:g} s of an idle machine: {process.args!r}"


def run(*command: str | Path, limit_s: float = HANG_S, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A program with nobody at its keyboard, to its end."""
    settings = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | settings
    with subprocess.Popen(command, text=True, **settings) as process:
        try:
            out, err = said_by(process, limit_s)
        except BaseException:
            process.kill()
            raise
        return subprocess.CompletedProcess(command, process.returncode, out, err)


def does(*command: str | Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The same for one that has to go well."""
    return went_well(run(*command, **settings))


def went_well(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done
