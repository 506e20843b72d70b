"""Time, and what waits for it: an agent, and who does pieces, asks this for both, so that tests/sim can play them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


class Clock:
    def now(self) -> float:
        """Seconds that also pass while the machine sleeps, and that nobody sets."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def wall(self) -> float:
        """The time of the day."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def event(self) -> threading.Event:
        return threading.Event()

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def start(self, target: Callable[..., object], *args: Any) -> None:
        """Runs `target` in a thread of its own, which does not keep the process alive."""
        threading.Thread(target=target, args=args, daemon=True).start()


class WorkClock(Clock):
    """The clock of a process that works: it stands still while the machine sleeps, or a piece would count as hung."""

    def now(self) -> float:
        return time.monotonic()
