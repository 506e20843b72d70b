"""What an agent touches outside itself, but for its GPUs and who uses the machine. tests/sim gives it a played one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from train.clock import Clock
from train.cluster.network import Network
from train.cluster.processes import Processes
from train.files import set_aside, write_atomic
from train.runlog.events import append_whole
from train.runlog.tail import Tail


class Disk:
    """Where an agent's files are. It may be full or slow, and tests/sim plays one that is."""

    def read(self, file: Path) -> str:
        return file.read_text()

    def changed_ns(self, file: Path) -> int:
        return file.stat().st_mtime_ns

    def tail(self, file: Path, last_bytes: int) -> Tail:
        return Tail(file, last_bytes=last_bytes)

    def write(self, file: Path, text: str) -> None:
        """Writes a file that survives a power cut, or the old one does; and nobody else can read it."""
        write_atomic(file, text.encode(), mode=0o600)

    def show(self, file: Path, text: str) -> None:
        """Writes a file whole too, but it is not worth an fsync."""
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(text)
        draft.replace(file)

    def append(self, file: Path, lines: str) -> None:
        append_whole(file, lines)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def set_aside(self, folder: Path) -> None:
        set_aside(folder)


class Signals:
    def listen(self, to_stop: Callable[[int, FrameType | None], None]) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, to_stop)
        # What Slurm sends before the time is over. Blocked, it ends no process that is started from here either.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])

    def time_is_over(self) -> bool:
        return signal.SIGUSR1 in signal.sigpending()


def say(text: str) -> None:
    """Writes a line into the journal."""
    print(text, file=sys.stderr, flush=True)


CLOCK = Clock()


@dataclass(kw_only=True)
class Outside:
    clock: Clock = CLOCK
    network: Network = field(default_factory=lambda: Network(CLOCK))
    disk: Disk = field(default_factory=Disk)
    processes: Processes = field(default_factory=Processes)
    signals: Signals = field(default_factory=Signals)
    say: Callable[[str], None] = say
