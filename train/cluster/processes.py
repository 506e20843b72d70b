"""Starts worker processes, by the fork server while there is one, and tells how they are."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from train.cluster.forkserver import ForkServer, Worker, with_source


class Memory:
    """A file in this process's memory that a worker knows the way to."""

    def __init__(self, name: str) -> None:
        self.file = os.fdopen(os.memfd_create(name), "r+b", buffering=0)
        self.path = f"/proc/{os.getpid()}/fd/{self.file.fileno()}"

    def read(self) -> bytes:
        return os.pread(self.file.fileno(), 1 << 16, 0)

    def write(self, text: bytes) -> None:
        self.file.truncate(0)
        os.pwrite(self.file.fileno(), text, 0)


class Process:
    """One worker, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes] | Worker, cause: Memory, word: Memory, answer: Memory) -> None:
        self.process, self.cause, self.word, self.answer = process, cause, word, answer
        self.told = 0

    @property
    def pid(self) -> int | None:
        return self.process.pid

    def poll(self) -> int | None:
        return self.process.poll()

    def reported(self) -> bytes:
        """Why it failed, in its own words; nothing where it could not say, or said it of a group before this one."""
        cause = self.cause.read()
        with contextlib.suppress(ValueError):
            word = json.loads(cause)["word"]
            return b"" if word is not None and word < self.told else cause
        return cause

    def can_stay(self) -> bool:
        """Whether it may stay while its group changes (train/parallel/worker_orders.py)."""
        return bool(self.answer.read())

    def tell(self, number: int, env: Mapping[str, str]) -> None:
        """Tells the worker its place in the next group; with an empty one it waits for a group."""
        self.cause.write(b"")
        self.told = number
        self.word.write(json.dumps({"word": number, "env": dict(env)}).encode())
        if self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)

    def has_obeyed(self, number: int) -> bool:
        return self.answer.read() == str(number).encode()

    def is_stopped(self) -> bool:
        try:
            return fields_of(Path(f"/proc/{self.pid}/stat"))[0] in ("T", "t")
        except OSError:
            return False

    def waits_in_kernel(self) -> bool:
        """Whether one of its threads waits in the kernel, where no signal reaches it."""
        stats = Path(f"/proc/{self.pid}/task").glob("*/stat")
        with contextlib.suppress(OSError):
            return any(fields_of(stat)[0] == "D" for stat in stats)
        return False

    def send(self, number: signal.Signals) -> None:
        """Sends the signal to the worker, and to all that it has started."""
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
        """Starts `python COMMAND…`."""
        cause, word, answer = Memory("failure"), Memory("word"), Memory("answer")
        own = {"MOTLEY_AGENT": str(os.getpid()), "MOTLEY_FAILURE": cause.path}
        own |= {"MOTLEY_ORDER": word.path, "MOTLEY_OBEYED": answer.path}
        whole = with_source({**os.environ, **own, **env})
        forked = self.forkserver.start(command, whole) if self.forkserver else None
        process = forked or subprocess.Popen(
            [sys.executable, *command], env=whole, stdin=subprocess.DEVNULL, start_new_session=True
        )
        return Process(process, cause, word, answer)

    def pace(self) -> float:
        """How many times as long as on an idle machine things take here, by who wants to compute."""
        return max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))

    def used_by(self, pids: Collection[int]) -> tuple[float, int]:
        """Processor time and bytes from the disk, of all that these have started too."""
        ticks = read_bytes = 0
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                fields = fields_of(folder / "stat")
                if int(fields[3]) in pids:
                    ticks += sum(map(int, fields[11:15]))
                    read = re.search(r"^read_bytes: (\d+)", (folder / "io").read_text(), re.MULTILINE)
                    read_bytes += int(read[1]) if read else 0
        return ticks / os.sysconf("SC_CLK_TCK"), read_bytes


def fields_of(stat: Path) -> list[str]:
    """The fields of a `stat` file behind the program's name, its state first. The kernel cuts that name after 15 bytes,
    also in the middle of a letter."""
    return stat.read_bytes().rpartition(b")")[2].decode().split()
