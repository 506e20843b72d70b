"""What an agent touches outside itself, but for its GPUs and who uses the machine. tests/sim gives it a played one."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType

from train.clock import Clock
from train.cluster.disk import Disk
from train.cluster.network import Network
from train.cluster.processes import Processes


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
