"""A script of one's own while it runs (./motley torchrun): each node's lines behind its name, until it ended on all.

Nothing is known of such a script but what it prints, and how it ends.
"""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from console.infra.node import Node, Silent
from console.processes import end_group
from console.text_layout import detached, first, say
from console.watch.run_in_words import Ended
from plugins.module_utils.motley.node_replies import AgentView, Look
from train.runlog.state import Event
from train.safe_stdio import unread

ENDS = ("done", "failed", "stopped")
SILENT_S = 20.0
"""A node reports each second, and a connection to one that is off takes some."""
GONE_S = 3.0
"""Without a process and without a word of how it ended."""
APART_S = 30.0
"""How long others may go on where a node failed: torchrun ends them within seconds, unless they wait for it."""


def follow(nodes: list[Node], run: str, looks: Mapping[str, Look], *, as_json: bool = False) -> int:
    """Follows a script that is running already: its lines so far, and all that come."""
    if as_json:
        print(
            f"{run} is a script of your own: it has no events   its lines: ./motley logs", file=sys.stderr, flush=True
        )
        return 1
    since = {name: float(look["since"]) for name, look in looks.items() if look["run"] == run}
    return show([node for node in nodes if node.name in since], ScriptView(run, since))


def show(nodes: list[Node], view: ScriptView) -> int:
    try:
        ended = watch(nodes, view)
    except KeyboardInterrupt:
        say(detached("script"))
        return 0
    headline, *details = ended.lines
    for line in ended.lines if ended.ok else [f"✗ {headline}", *(f"  {detail}" for detail in details)]:
        say(line)
    return 0 if ended.ok else 1


@dataclass(slots=True)
class ScriptView:
    """What the nodes report of it. Pure: reports in, lines out."""

    run: str
    since: dict[str, float] = field(default_factory=dict)
    """Node → when this start began, by its own clock."""
    last: dict[str, AgentView] = field(default_factory=dict)
    """Node → its newest agent.json, of this start."""
    ended_at: dict[str, float] = field(default_factory=dict)
    """Node → when it was seen without a process, by the controller's clock."""
    heard_at: dict[str, float] = field(default_factory=dict)
    warned: set[str] = field(default_factory=set)
    newest: dict[str, float] = field(default_factory=dict)
    """Node → time of its newest line that was shown: a connection that is made again repeats some."""

    def take(self, node: str, kind: str, facts: Event, at: float) -> list[str]:
        self.heard_at[node] = at
        self.warned.discard(node)
        if kind == "out":
            written = float(facts["time"])
            new = written > max(self.since.get(node, 0), self.newest.get(node, 0))
            self.newest[node] = max(self.newest.get(node, 0), written)
            return [str(facts["text"])] if new else []
        if kind == "now":
            view: AgentView = facts.get("now") or {}
            if float(view.get("time", 0)) >= self.since.get(node, 0):
                self.last[node] = view
            if facts["on"] or facts.get("wanted"):
                self.ended_at.pop(node, None)
            else:
                self.ended_at.setdefault(node, at)
        return []

    @property
    def states(self) -> dict[str, str]:
        return {node: str(view.get("state", "")) for node, view in self.last.items()}

    def over(self, node: str, at: float) -> bool:
        """A node that ended has said how, or is without a process for so long that it never will."""
        if node not in self.ended_at:
            return False
        return self.states.get(node) in ENDS or at - self.ended_at[node] > GONE_S

    def warnings(self, nodes: list[str], at: float) -> list[str]:
        """Each once: who does not answer, and that the others wait for one that has failed."""
        lines = []
        for node in nodes:
            if at - self.heard_at.setdefault(node, at) > SILENT_S and node not in self.warned:
                self.warned.add(node)
                lines.append(
                    f"! {node} does not answer; a script that waits for it does so until its own time-out "
                    "(gloo's is 30 minutes)   end it: ./motley stop"
                )
        failed = [node for node in nodes if self.states.get(node) == "failed"]
        running = [node for node in nodes if not self.over(node, at)]
        late = any(at - self.ended_at.get(node, at) > APART_S for node in failed)
        if late and running and "apart" not in self.warned:
            self.warned.add("apart")
            lines.append(
                f"! failed on {', '.join(failed)}, still there on {', '.join(running)}   end it: ./motley stop"
            )
        return lines

    def verdict(self, nodes: list[str]) -> Ended:
        states = {node: self.states.get(node, "") for node in nodes}
        if all(state == "done" for state in states.values()):
            return Ended(True, (f"done · {self.run} · results and output: ./motley fetch --run {self.run}",))
        if "failed" in states.values():
            node = self.culprit([node for node, state in states.items() if state == "failed"])
            view = self.last[node]
            lines = [f"    {line}" for line in view.get("last") or []]
            return Ended(False, (f"{self.run} failed on {node}: {first(str(view.get('reason', '')))}", *lines[-4:]))
        if "stopped" in states.values():
            return Ended(True, (f"{self.run} was stopped",))
        gone = ", ".join(node for node, state in states.items() if state not in ENDS)
        return Ended(False, (f"{self.run} ended without a word on {gone}", "see: ./motley logs"))

    def culprit(self, failed: list[str]) -> str:
        """The first to fail of those that did not only lose another."""
        own = [node for node in failed if not self.last[node].get("peer")]
        return min(own or failed, key=lambda node: float(self.last[node].get("time", 0)))


def watch(nodes: list[Node], view: ScriptView) -> Ended:
    """Until it has ended on every node that answers."""
    width = max(len(node.name) for node in nodes)
    names = [node.name for node in nodes]
    unread_lines: queue.Queue[tuple[str, bytes]] = queue.Queue()
    streams = [Stream(node, view.run, unread_lines) for node in nodes]
    try:
        while True:
            with contextlib.suppress(queue.Empty):
                name, line = unread_lines.get(timeout=0.2)
                for text in view.take(name, *parsed(line), time.monotonic()):
                    say(f"{name:<{width}}  {text}")
                if not unread_lines.empty():
                    continue
            if unread():
                raise KeyboardInterrupt
            at = time.monotonic()
            for warning in view.warnings(names, at):
                say(warning)
            if all(view.over(name, at) or name in view.warned for name in names) and view.ended_at:
                return view.verdict(names)
    finally:
        for stream in streams:
            stream.end()


def parsed(line: bytes) -> tuple[str, Event]:
    kind, _, text = line.decode(errors="replace").partition(" ")
    with contextlib.suppress(ValueError):
        return kind, dict(json.loads(text))
    return "", {}


class Stream:
    """What one node reports, in a thread; a connection that breaks is made again."""

    def __init__(self, node: Node, run: str, lines: queue.Queue[tuple[str, bytes]]) -> None:
        self.node, self.run, self.lines, self.over = node, run, lines, threading.Event()
        self.process: subprocess.Popen[bytes] | None = None
        self.thread = threading.Thread(target=self._pump, daemon=True)
        self.thread.start()

    def _pump(self) -> None:
        while not self.over.wait(0.5):
            try:
                self.process = process = self.node.events(self.run)
            except Silent:
                continue
            assert process.stdout
            for line in process.stdout:
                self.lines.put((self.node.name, line.rstrip(b"\n")))

    def end(self) -> None:
        self.over.set()
        if self.process:
            end_group(self.process)
