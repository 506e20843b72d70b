"""Shows a followed run: lines that stay in place on a terminal, elsewhere a line every few seconds; and its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from console.infra.node import Node
from console.text_layout import detached, redraw, width
from console.watch.follow import Follower
from console.watch.run_in_words import Ended, RunView
from train.safe_stdio import unread


class Screen:
    def __init__(self, view: RunView, say: Callable[[str], None], *, terminal: bool, every_s: float) -> None:
        self.view, self.say, self.terminal, self.every_s = view, say, terminal, every_s
        self.began = self.next = time.monotonic()
        self.shown: list[str] = []

    def show(self, line: str) -> None:
        self.clear()
        self.say(line)

    def clear(self) -> None:
        if self.terminal and self.shown:
            redraw("", over=len(self.shown))
            self.shown = []

    def tick(self) -> None:
        if unread():
            raise KeyboardInterrupt  # whoever leaves does not want to see more; the run is left alone
        waited = time.monotonic() - self.began
        if self.terminal:
            lines = self.view.live(width(), waited_s=waited)
            if lines != self.shown:
                redraw(*lines, over=max(1, len(self.shown)))
                self.shown = lines
        elif time.monotonic() >= self.next and (line := self.view.line(waited_s=waited)) not in self.shown:
            self.next = time.monotonic() + self.every_s
            self.shown = [line]
            self.say(line)


def watch(
    nodes: list[Node],
    view: RunView,
    say: Callable[[str], None],
    *,
    terminal: bool,
    every_s: float = 10.0,
    until_proven: bool = False,
) -> Ended | None:
    """Shows the run until it ends; None: detached as requested (until_proven). KeyboardInterrupt is the caller's."""
    screen = Screen(view, say, terminal=terminal, every_s=every_s)
    try:
        ended = Follower(nodes, view, screen.show, screen.tick).follow(until_proven=until_proven)
    finally:
        screen.clear()
    if ended is None:
        proven = view.state.proven
        say(f"the first step is proven on {len(proven)} of {len(view.order)} nodes: {', '.join(proven)}")
        say(detached("run"))
    elif ended.ok:
        for line in ended.shown:
            say(line)
    return ended
