"""The thread that does one piece after the other, beside the one that shares the list. It goes on while the group of
its process changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

from train.clock import Clock, WorkClock
from train.plan.settings.read_settings import RunConfig
from train.pool import PoolRecipe
from train.pool.pieces import Done, Known, Piece
from train.pool.record import require_same_data

STUCK, STUCK_S = 10, 20.0
"""How many times as long as any other here, and how long at least, a piece shows no sign of life that hangs."""
FIRST_S = 3600.0
"""How long one may that is the first of all: nothing tells yet how long they take."""

Ended = tuple[Piece, float, dict[str, Any]]


@dataclass(kw_only=True)
class Desk:
    """What a recipe may use of the run."""

    config: RunConfig
    node: str
    device: str
    """What this process computes on: cpu, cuda:0, …"""
    precision: str
    known: Callable[[], Known]
    doing: Callable[[str], None]
    """Says what this machine does before its first piece, to who watches."""
    clock: Clock = field(default_factory=WorkClock)
    is_stopped: threading.Event = field(init=False)
    """Set when the piece is to end: somebody else was faster, or this process leaves."""
    notes: list[dict[str, Any]] = field(default_factory=list)
    """What was told of the piece that is running."""
    noted_at: float = 0.0

    def __post_init__(self) -> None:
        self.is_stopped = self.clock.event()

    def lives(self) -> None:
        """Says that the piece goes on, where there is nothing to tell of it for long."""
        self.noted_at = self.clock.now()

    def note(self, fact: dict[str, Any]) -> None:
        """Tells all machines something of the piece that is being done."""
        self.lives()
        self.notes.append(fact)


class Hands:
    def __init__(self, recipe: PoolRecipe, desk: Desk) -> None:
        self.recipe, self.desk, self.clock = recipe, desk, desk.clock
        self.running: Piece | None = None
        self.error: Exception | None = None
        self.ended: Ended | None = None
        """The piece that has ended, its seconds and what came of it, until that was brought."""
        self.is_loaded = self.has_begun = False
        self.is_dropped = self.leaves = False
        self.begun_at = 0.0
        self.lock = self.clock.lock()
        self.begins, self.news = self.clock.event(), self.clock.event()
        self.clock.start(self._work)

    @property
    def is_free(self) -> bool:
        """Whether it has loaded, and does nothing."""
        return self.is_loaded and self.running is None and not self.leaves

    def start(self, piece: Piece) -> None:
        self.is_dropped = False
        self.desk.is_stopped.clear()
        self.desk.notes.clear()
        self.running = piece
        self.begins.set()

    def drop(self) -> None:
        """Ends the piece that is being done; what comes of it counts no more."""
        with self.lock:
            if self.running and not self.ended:
                self.is_dropped = True
                self.desk.is_stopped.set()

    @property
    def silent_s(self) -> float:
        """Since the last sign of life of the piece that is running."""
        return self.clock.now() - max(self.begun_at, self.desk.noted_at)

    def hangs(self, done: Collection[Done]) -> bool:
        here_s = [each.seconds for each in done if each.node == self.desk.node]
        longest_s = max(here_s, default=STUCK * max((each.seconds for each in done), default=0.0))
        most_s = max(STUCK_S, STUCK * longest_s) if done else FIRST_S
        return bool(self.running and not self.ended) and self.silent_s > most_s

    def require_life(self, done: Collection[Done]) -> None:
        """Its agent changes the group: a piece that hangs is not taken along, or it would hang for ever where nobody
        else can take it."""
        if self.running and self.hangs(done):
            number = self.running.number
            raise RuntimeError(f"piece {number} has shown no sign of life for {self.silent_s:.0f} s, and hangs")

    def leave(self) -> None:
        """Ends the piece that is being done, and begins no other: the process ends."""
        self.leaves = True
        self.drop()

    @property
    def notes(self) -> list[dict[str, Any]]:
        return self.desk.notes

    def brought(self) -> None:
        self.ended = self.running = None

    def wait(self, seconds: float) -> None:
        """Waits so long, or until something has ended."""
        self.news.wait(seconds)
        self.news.clear()

    def _work(self) -> None:
        try:
            self.recipe.load(self.desk)
            require_same_data(self.recipe, self.desk.config, self.desk.known().done.values())
            self.is_loaded = True
            while True:
                self.begins.wait()
                self.begins.clear()
                self._do()
        except Exception as error:
            self.error = error

    def _do(self) -> None:
        piece = self.running
        assert piece
        if not self.has_begun:
            self.has_begun = True
            self.desk.doing("at its first piece")
        started = self.begun_at = self.clock.now()
        try:
            result = self.recipe.work(piece, self.desk)
        except Exception:
            if not self.is_dropped:  # what it fails with, told to end, is not looked at
                raise
            result = {}
        with self.lock:
            if self.is_dropped:
                self.running = None
            else:
                self.ended = piece, self.clock.now() - started, result
        self.news.set()
