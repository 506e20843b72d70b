"""Starts worker processes, by the fork server while there is one, and tells how they are."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import IO

from train.cluster.forkserver import ForkServer, Worker, with_source


class Process:
    """One worker: in a session of its own, with a file in this process's memory for the cause of its failure."""

    def __init__(self, process: subprocess.Popen[bytes] | Worker, cause: IO[bytes]) -> None:
        self.process, self.cause = process, cause

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.poll()

    def reported(self) -> bytes:
        """Why it failed, in its own words; nothing where it could not say."""
        self.cause.seek(0)
        return self.cause.read()

    def is_stopped(self) -> bool:
        try:
            return Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in ("T", "t")
        except OSError:
            return False

    def waits_in_kernel(self) -> bool:
        """One of its threads does, where no signal reaches it."""
        stats = Path(f"/proc/{self.pid}/task").glob("*/stat")
        with contextlib.suppress(OSError):
            return any(stat.read_text().rsplit(")", 1)[1].split()[0] == "D" for stat in stats)
        return False

    def send(self, number: signal.Signals) -> None:
        """To all that it has started, too."""
        if isinstance(self.process, Worker):
            self.process.send_signal(number)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)


class Processes:
    def __init__(self, forkserver: ForkServer | None = None) -> None:
        self.forkserver = forkserver

    def warm(self) -> None:
        """From now on a worker starts with its libraries loaded."""
        self.forkserver = self.forkserver or ForkServer()

    def start(self, command: Sequence[str], env: Mapping[str, str]) -> Process:
        """`python COMMAND…`"""
        cause = os.fdopen(os.memfd_create("failure"), "rb")
        own = {"MOTLEY_AGENT": str(os.getpid()), "MOTLEY_FAILURE": f"/proc/{os.getpid()}/fd/{cause.fileno()}"}
        whole = with_source({**os.environ, **own, **env})
        forked = self.forkserver.start(command, whole) if self.forkserver else None
        return Process(forked or _start_cold(command, whole), cause)

    def pace(self) -> float:
        """How many times as long as on an idle machine things take here, by who wants to compute."""
        return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))

    def used_by(self, pids: Collection[int]) -> tuple[float, int]:
        """Processor time and bytes from the disk, of all that these have started too."""
        ticks = read_bytes = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                if int(stat[3]) in pids:
                    ticks += sum(map(int, stat[11:15]))
                    read = re.search(r"^read_bytes: (\d+)", (folder / "io").read_text(), re.MULTILINE)
                    read_bytes += int(read[1]) if read else 0
        return ticks / os.sysconf("SC_CLK_TCK"), read_bytes


def _start_cold(command: Sequence[str], env: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *command], env=env, stdin=subprocess.DEVNULL, start_new_session=True)
