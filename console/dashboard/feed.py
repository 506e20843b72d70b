"""What the live page shows, read from one living node as follow does: a state that grows, and never asks the run to do
anything. The whole event log is read once, then its end as it comes.
"""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from console import launch_records
from console.electricity import number, price_of, watts_of
from console.infra.node import Node, Silent, ask_all
from console.inventory.keys import Nodes
from console.processes import end_group
from console.report.read_run import History, LaunchRecord, history_of
from console.report.run_charts import kwh
from console.watch.follow import Follower
from console.watch.run_in_words import RunView
from console.watch.status import runs_of
from plugins.module_utils.motley.node_replies import Look
from train.runlog.event_types import is_event
from train.runlog.state import Change, Event, RunState, time_of
from train.runlog.tail import events_of

LOOK_S = 45.0
"""Between two looks at the machines that are not read anyway, while somebody watches."""
CARDS_S = 4.0
"""Between two readings of a machine's cards."""
QUIET = ("step", "proof", "checkpoint", "balance", "eval", "samples")
"""Changes that can wait for the next drawing."""


@dataclass
class Feed:
    nodes: list[Node]
    inventory: Nodes
    """What hosts.yml says of each machine."""
    run: str = ""
    launches: Path | None = None
    """The controller's folder, where it keeps what it launched."""
    state: RunState = field(default_factory=RunState)
    changes: list[Change] = field(default_factory=list)
    evals: list[Event] = field(default_factory=list)
    saved: Event | None = None
    """The newest checkpoint."""
    readings: list[Event] = field(default_factory=list)
    newest: dict[str, Event] = field(default_factory=dict)
    """Node → its newest reading."""
    gpus: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    """Node → its cards, as nvidia-smi lists them."""
    kwh: dict[str, float] = field(default_factory=dict)
    """What the cards of a node took since this page watches."""
    looks: dict[str, Look] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)
    view: RunView | None = None
    follower: Follower | None = None
    problem: str = ""
    """Why nothing is read."""
    urgent: int = 0
    """Counts what should be seen at once."""
    watched_at: float = 0.0
    _launch: dict[str, LaunchRecord] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        for work in (self._follow_for_ever, self._look_for_ever):
            threading.Thread(target=work, daemon=True).start()

    def take(self, event: Event, *, urgent: bool = True) -> None:
        with self.lock:
            new = self.state.apply(event)
            self.changes += new
            self.evals += [change.event for change in new if change.kind == "eval"]
            self.saved = next((change.event for change in new if change.kind == "checkpoint"), self.saved)
            self.urgent += urgent and any(change.kind not in QUIET for change in new)

    def history(self) -> History | None:
        with self.lock:
            if not any(change.kind == "start" for change in self.changes):
                return None
            readings = list(self.readings)
            return history_of(self.state, list(self.changes), readings, launch=self.launch, gpus=dict(self.gpus))

    @cached_property
    def price(self) -> tuple[float | None, str]:
        return price_of(self.inventory.values())

    @property
    def launch(self) -> LaunchRecord:
        """What was launched, if it was from here; with the price of now."""
        if self.run not in self._launch:
            records = launch_records.known(self.launches) if self.launches and self.run else {}
            record: LaunchRecord = records.get(self.run, {})
            idle = {name: number(values.get("motley_idle_watts")) for name, values in self.inventory.items()}
            if self.price[0]:
                record["electricity"] = {"kwh_price": self.price[0], "currency": self.price[1], "idle_watts": idle}
            self._launch[self.run] = record
        return self._launch[self.run]

    @property
    def running(self) -> bool:
        return bool(self.view and not self.view.ended and self.changes and not self.problem)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _follow_for_ever(self) -> None:
        while True:
            try:
                if self._follow_one():
                    return
            except Exception as error:  # one that nobody thought of: the page says so, and reading begins again
                self.problem = f"{type(error).__name__}: {error}"
            time.sleep(3)

    def _follow_one(self) -> bool:
        answers, silent = ask_all(self.nodes, lambda node: node.status())
        self._looked(answers, silent)
        running = {name: look for name, look in answers.items() if look["on"] and not look["now"].get("script")}
        ran = sorted((look for look in answers.values() if look["run"]), key=lambda look: look["step"].get("time", 0))
        self.run = self.run or (runs_of(running)[0] if running else ran[-1]["run"] if ran else "")
        if not self.run:
            self.problem = "no node answers" if not answers else "no run is running, and none was"
            return False
        self.problem = ""
        nodes = [node for node in self.nodes if node.name in running] or [n for n in self.nodes if n.name in answers]
        self._read_whole(nodes)
        since = {name: float(look["since"]) for name, look in answers.items()}
        self.view = FeedView(RunState(run=self.run), [node.name for node in self.nodes], since)
        self.view.feed = self
        self.follower = Follower(self.nodes, self.view, lambda _: None, lambda: None)
        self.follower.follow()
        self.follower = None
        self.look()
        self.urgent += 1
        return True

    def _read_whole(self, nodes: list[Node]) -> None:
        """Takes what trainers and agents wrote, in the order of its time, from the first node that has some."""
        for node in nodes:
            try:
                events = [*lines_of(node.events_after(self.run, 0)), *lines_of(node.members(self.run))]
            except Silent:
                continue
            for event in sorted(events, key=time_of):
                self.take(event, urgent=False)
            if self.changes:
                self.urgent += 1
                return

    def _look_for_ever(self) -> None:
        while True:
            time.sleep(LOOK_S)
            if time.monotonic() - self.watched_at < LOOK_S and not (self.view and self.view.ended):
                self.look()

    def look(self) -> None:
        read = self.follower.node if self.follower else None
        self._looked(*ask_all([node for node in self.nodes if node is not read], lambda node: node.status()))

    def _looked(self, answers: dict[str, Look], silent: dict[str, str]) -> None:
        with self.lock:
            self.looks = {name: look for name, look in self.looks.items() if name not in silent} | answers
            self.silent = {name: why for name, why in self.silent.items() if name not in answers} | silent
            for name, look in answers.items():
                self.read_gpus(name, look["now"].get("gpus") or look["gpus"], float(look["time"]))

    def read_gpus(self, node: str, gpus: list[dict[str, str]], at: float) -> None:
        degrees = [value for gpu in gpus if (value := number(gpu.get("temperature.gpu"))) is not None]
        used = [value for gpu in gpus if (value := number(gpu.get("memory.used"))) is not None]
        before = self.newest.get(node)
        self.gpus[node] = gpus or self.gpus.get(node, [])
        if not gpus or (before and at - before["time"] < CARDS_S):
            return
        facts = {"celsius": max(degrees, default=None), "watts": watts_of(gpus), "used_mb": sum(used) if used else None}
        self.newest[node] = {"event": "gpu", "node": node, "time": at, **facts}
        self.readings.append(self.newest[node])
        if before and (took := kwh([before, self.newest[node]])):
            self.kwh[node] = self.kwh.get(node, 0.0) + took


def lines_of(process: subprocess.Popen[bytes]) -> list[Event]:
    """The events of a log, which stand behind one line that says where it begins."""
    assert process.stdout
    try:
        lines = process.stdout.read().split(b"\n")[1:]
    finally:
        end_group(process)
    return [event for event, _ in events_of(lines, whole=True)]


class FeedView(RunView):
    """What follow reads goes to the feed as well."""

    feed: Feed

    def take(self, node: str, kind: str, facts: Event) -> list[str]:
        if kind == "now":
            view = facts.get("now") or {}
            with self.feed.lock:
                self.feed.read_gpus(node, view.get("gpus") or [], float(facts["time"]))
        elif is_event(facts, whole=True):
            self.feed.take(facts)
        lines = RunView.take(self, node, kind, facts)
        if kind == "now":
            with self.feed.lock:
                self.feed.changes += self.feed.state.observe(facts.get("now") or {}, running=bool(facts.get("on")))
        return lines
