"""Follows a run: reads the event logs from one living node, and from another when that one falls silent.

It only reads, so whatever happens to it changes nothing for the run. run_in_words.py turns what it reads into lines for
a person.
"""

from __future__ import annotations

import json
import queue
import subprocess
import time
from collections.abc import Callable

from console.infra.node import Node, Silent, ask_all
from console.processes import each_line, end_group
from console.watch.run_in_words import Ended, RunView
from plugins.module_utils.motley.node_replies import NowLine

SILENT_S = 6.0
GONE_S = 3.0
"""Without a process on any node for so long, a run has ended."""


class Follower:
    """Reads from one living node at a time. `show` gets every line worth keeping, `tick` runs each 0.5 s."""

    def __init__(
        self,
        nodes: list[Node],
        view: RunView,
        show: Callable[[str], None],
        tick: Callable[[], None],
    ) -> None:
        self.nodes, self.view, self.show, self.tick = nodes, view, show, tick
        self.place = 0
        self.last_line_at = 0.0
        self.off_since = 0.0
        self.unread: queue.Queue[bytes] = queue.Queue()
        self.process: subprocess.Popen[bytes] | None = None
        self.all_silent = False

    def follow(self, *, until_proven: bool = False, limit_s: float = 0.0) -> Ended | None:
        """Follows the run until it ends; or until its first step is proven, which is None."""
        began = time.monotonic()
        try:
            while not self.view.ended:
                if self.process is None:
                    self._connect()
                self._read()
                self.tick()
                if until_proven and self.view.state.proven:
                    return None
                if limit_s and time.monotonic() - began > limit_s:
                    raise TimeoutError
        finally:
            self._drop()
        return self.view.ended

    @property
    def node(self) -> Node:
        return self.nodes[self.place % len(self.nodes)]

    def _connect(self) -> None:
        try:
            process = self.node.events(self.view.state.run)
        except Silent:
            self._next()
            return
        self.process, self.last_line_at, self.off_since = process, time.monotonic(), 0.0
        self.unread = queue.Queue()
        each_line(process, self.unread.put)

    def _read(self) -> None:
        end = time.monotonic() + 0.5
        if not self.process:  # without a network of our own each try fails at once
            time.sleep(0.5)
        while self.process and (left := end - time.monotonic()) > 0:
            try:
                line = self.unread.get(timeout=left)
            except queue.Empty:
                break
            if not line:
                self._next()
                return
            self.last_line_at = time.monotonic()
            self._take(line)
        if self.process and time.monotonic() - self.last_line_at > SILENT_S:
            self._next()

    def _take(self, line: bytes) -> None:
        kind, _, text = line.decode(errors="replace").partition(" ")
        try:
            facts = json.loads(text)
        except ValueError:
            return
        self.all_silent = False
        for shown in self.view.take(self.node.name, kind, facts):
            self.show(shown)
        if kind == "now" and not self.view.ended:
            self._notice_end(facts)

    def _notice_end(self, facts: NowLine) -> None:
        """No process is left on this node: another may still train; if none does, it was stopped or never began."""
        if facts["on"] or facts.get("wanted"):
            self.off_since = 0.0
            return
        self.off_since = self.off_since or time.monotonic()
        if time.monotonic() - self.off_since < GONE_S:
            return
        answers, silent = ask_all(self.nodes, lambda node: node.status(), doing="")
        running = [name for name, look in answers.items() if look["on"] and look["run"] == self.view.state.run]
        if running:
            self._next(to=running[0])
        elif silent and any(name in self.view.state.members for name in silent) and len(silent) * 2 > len(self.nodes):
            self._next()
        else:
            self.view.ended = self.view.stopped(str(facts.get("words") or "").strip())

    def _next(self, to: str = "") -> None:
        self._drop()
        names = [node.name for node in self.nodes]
        self.place = names.index(to) if to else self.place + 1
        if not to and self.place % len(self.nodes) == 0:
            answers = ask_all(self.nodes, lambda node: node.status(), doing="")[0]
            if not answers and not self.all_silent:
                self.all_silent = True
                self.show("… no node answers; the run continues without us, and this keeps looking")
            running = [name for name, look in answers.items() if look["on"]]
            self.place = names.index(running[0]) if running else self.place

    def _drop(self) -> None:
        if self.process:
            end_group(self.process)
            self.process = None
