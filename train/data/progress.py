"""A bar for work that takes a while: on a terminal only, and never on stdout."""

from __future__ import annotations

import sys
import time


class Bar:
    def __init__(self, what: str, total: int) -> None:
        self.what = what
        self.total = max(1, total)
        self.started = self.shown = time.monotonic()
        self.visible = sys.stderr.isatty()

    def at(self, done: int, note: str = "") -> None:
        now = time.monotonic()
        if not self.visible or now - self.shown < 0.2:
            return
        self.shown = now
        part = min(1.0, done / self.total)
        left_s = (now - self.started) * (1 - part) / part if part else 0
        filled = "█" * round(part * 24)
        print(f"\r{self.what} {filled:░<24} {part:4.0%} {note} {left_s:.0f} s left \033[K", end="", file=sys.stderr)

    def done(self) -> None:
        if self.visible:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
