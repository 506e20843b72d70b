"""A run as a person watches it: its diaries in, a few calm lines and one live line out.

Story is pure: tests/unit/test_follow.py feeds it recorded diaries. Follower reads them from one living node and goes on
with another when that one falls silent; it only reads, so whatever happens to it changes nothing for the run.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from console.infra.node import Node, Silent, ask_all

SILENT_S = 6.0
UNHEARD_S = 8.0
SETTLING = 8
CLOCKS_S = 2.0
"""How far the nodes' clocks may be apart."""
BAR = 24

NEXT = "   ask it: make ask   adapter and diaries: make fetch   on one page: make report"


@dataclass(frozen=True, slots=True)
class Ended:
    ok: bool
    lines: tuple[str, ...]


@dataclass(kw_only=True, slots=True)
class Story:
    run: str
    order: list[str]
    since: dict[str, float] = field(default_factory=dict)
    """Node → when this launch began, by its own clock: what is older belongs to an earlier part of the run."""
    total: int = 0
    step: int = 0
    last: dict[str, Any] = field(default_factory=dict)
    """The newest step event."""
    members: list[str] = field(default_factory=list)
    gpus: dict[str, list[dict[str, str]]] = field(default_factory=dict)
    state: str = "starting"
    reason: str = ""
    proven: list[str] = field(default_factory=list)
    """The nodes of the first step that was proven since the launch."""
    failure: dict[str, Any] = field(default_factory=dict)
    ended: Ended | None = None
    told: set[tuple[Any, ...]] = field(default_factory=set)
    broken: float = 0.0
    """Time of the last step before the nodes changed, while nobody trains."""
    broken_step: int = 0
    restarted: bool = False
    """Whether a group of processes has begun since then."""
    before: list[str] = field(default_factory=list)
    """Who trained then."""
    usual: dict[str, float] = field(default_factory=dict)
    """Rows of each node lately, on average."""
    told_rows: dict[str, int] = field(default_factory=dict)
    settling: int = 0
    """Steps until the shares of these nodes are taken as the ones that were told."""
    stepped: float = 0.0
    pace_s: float = 0.0
    resumed: int = 0

    def take(self, node: str, kind: str, facts: dict[str, Any]) -> list[str]:
        """One line of a diary of one node; returns what there is to tell about it."""
        if kind == "now":
            return self._now(node, facts)
        fresh = float(facts.get("time", 0)) >= self.since.get(node, 0.0)
        if kind == "member":
            return self._member(facts) if fresh else []
        return self._event(facts, fresh)

    def _once(self, *key: Any) -> bool:
        """Every node tells the same; after a change of node it is all read again."""
        if key in self.told:
            return False
        self.told.add(key)
        return True

    # -- the trainer's diary ---------------------------------------------------------------------------------------

    def _event(self, facts: dict[str, Any], fresh: bool) -> list[str]:
        kind = facts["event"]
        if kind == "start":
            self.total, self.resumed = int(facts["total_steps"]), int(facts["step"])
            self.members = nodes_of(facts["nodes"])
            self.restarted = self.restarted or float(facts["time"]) > self.broken
            if fresh and self._once("start", self.resumed) and self.resumed and not self.broken:
                return [f"goes on from step {self.resumed}"]
        elif not fresh:
            return []
        elif kind == "step":
            return self._step(facts)
        elif kind == "proof" and not self.proven:
            self.proven = list(self.members)
        elif kind == "eval" and self._once(kind, facts["step"], facts["loss"]):
            best = " (best so far)" if facts["best"] else ""
            return [f"held-out loss {facts['loss']:.4f} after step {facts['step']}{best}"]
        elif kind == "warning" and self._once(kind, facts["step"], facts["message"]):
            return [f"! {facts['message']}"]
        elif kind == "failed" and facts["time"] > self.stepped:
            self.failure = facts
        return []

    def _step(self, facts: dict[str, Any]) -> list[str]:
        again = facts["step"] <= self.step and facts["time"] <= self.stepped + 0.5
        if again:  # the same step, read from another node
            return []
        lines = []
        members = nodes_of(facts["nodes"])
        if self.broken and not self.restarted:  # the last of the group that ends
            self._note_break(int(facts["step"]), float(facts["time"]))
        elif self.broken and facts["time"] > self.broken:
            lines.append(self._training_again(facts, members))
            self.broken = 0.0
        if moved := self._moved(rows_of(facts)):
            lines.append(f"shares at step {facts['step']}: {moved}")
        self.step, self.last, self.stepped = int(facts["step"]), facts, float(facts["time"])
        self.members, self.state, self.failure = members, "training", {}
        pace = float(facts["step_s"])
        self.pace_s = pace if not self.pace_s else 0.9 * self.pace_s + 0.1 * pace
        return lines

    def _moved(self, rows: dict[str, int]) -> str:
        """Which shares are others than those told last, and stay so: a machine that is also used makes them tremble."""
        if rows.keys() != self.usual.keys():
            self.usual, self.told_rows, self.settling = dict(rows), {}, SETTLING
        self.usual = {name: 0.8 * self.usual[name] + 0.2 * count for name, count in rows.items()}
        known, least = self.told_rows, max(1.0, 0.15 * sum(rows.values()))
        moves = bool(known) and any(abs(self.usual[name] - known[name]) >= least for name in rows)
        if not self.settling:
            self.settling = SETTLING if moves else 0  # told when it has settled
            return ""
        self.settling -= 1
        if self.settling or (known and not moves):
            return ""
        now = self.told_rows = {name: round(usual) for name, usual in self.usual.items()}
        return ", ".join(f"{name} {known[name]} → {now[name]}" for name in rows if known and known[name] != now[name])

    def _training_again(self, facts: dict[str, Any], members: list[str]) -> str:
        took = facts["time"] - self.broken
        repeated = max(0, self.broken_step - int(facts["step"]) + 1)
        after = f"after {took:.0f} s · {repeated or 'no'} step{'' if repeated == 1 else 's'} repeated"
        count = f"{len(members)} of {len(self.order)}"
        back = [name for name in members if name not in self.before]
        if back and len(members) > len(self.before):
            return f"✓ {', '.join(back)} back · {count} at step {facts['step']} {after}"
        return f"✓ training again with {count} at step {facts['step']} {after}"

    # -- the agents' diary -----------------------------------------------------------------------------------------

    def _member(self, facts: dict[str, Any]) -> list[str]:  # noqa: PLR0911 - one return for each kind
        kind, step, reason = facts["event"], facts.get("step", 0), facts.get("reason", "")
        names = ", ".join(facts.get("nodes") or [])
        if kind in ("up", "woke", "plan"):
            return [f"{facts['node']} woke up: {reason}"] if kind == "woke" and self._once(kind, facts["time"]) else []
        stale = float(facts["time"]) < self.stepped - CLOCKS_S  # of another node's diary, long told
        peer = kind == "failed" and reason.startswith("peer")  # it only noticed that another one is lost
        if (stale and kind != "ended") or peer:
            return []
        if not self._once(kind, facts.get("epoch"), names, reason if kind == "waiting" else ""):
            return []
        if kind == "lost":
            self._breaks()
            return [f"⚡ {names} lost at step {step} · {reason}"]
        if kind == "joined":
            self._breaks()
            return []  # the first step with it says so
        if kind == "ended":
            return self._end(reason)
        if kind == "waiting":
            self.state, self.reason = "waiting", reason
            return [f"… waiting: {reason}"] if self.broken else []  # at the start the live line says it
        if kind in ("failed", "stalled", "unfit"):
            self._breaks()
            return [f"⚡ {names} {kind} at step {step}: {first(reason)}"]
        return []  # leaving: the end says it

    def _breaks(self) -> None:
        if not self.broken and self.stepped:
            self.before, self.restarted = list(rows_of(self.last)), False
            self._note_break(self.step, self.stepped)

    def _note_break(self, step: int, time_: float) -> None:
        self.broken_step, self.broken = step, time_

    def _end(self, reason: str) -> list[str]:
        word, _, rest = reason.partition(": ")
        if word == "done":
            self.state = "done"
            loss = f" · loss {self.last['loss']:.4f}" if self.last else ""
            self.ended = Ended(True, (f"done · {self.step} steps{loss}{NEXT}",))
        else:
            self.state = "failed"
            self.ended = Ended(False, tuple(self._cause(rest or reason)))
        return []

    def _cause(self, reason: str) -> list[str]:
        """The trainer's own sentence with node and step, where it had time for one."""
        if self.failure:
            where = f"{self.failure['node']} in step {self.failure['step']}"
            lines = [f"run {self.run} failed on {where}: {first(self.failure['message'])}"]
            lines += str(self.failure["message"]).splitlines()[1:3]
            return lines
        return [f"run {self.run} failed: {first(reason)}", *reason.splitlines()[1:3]]

    # -- the agent's view ------------------------------------------------------------------------------------------

    def _now(self, node: str, facts: dict[str, Any]) -> list[str]:
        view = facts.get("now") or {}
        if float(view.get("time", 0)) < self.since.get(node, 0.0):
            return []
        if view.get("gpus"):
            self.gpus[node] = view["gpus"]
        if facts.get("on"):
            self.state, self.reason = str(view.get("state", self.state)), str(view.get("reason", ""))
            return self._unheard(node, view)
        if view.get("state") in ("done", "failed") and not self.ended:
            self._end(f"{view['state']}: {view.get('reason', '')}")
        return []

    def _unheard(self, node: str, view: dict[str, Any]) -> list[str]:
        """All were started a moment ago; a node that another cannot hear lost its power since, or was never heard."""
        if self.last or float(view.get("time", 0)) - self.since.get(node, float("inf")) < UNHEARD_S:
            return []
        found = []
        for name, peer in (view.get("peers") or {}).items():
            if peer["answers"] or name not in self.order or not self._once("unheard", name):
                continue
            if peer["how"] == "does not answer":
                found.append(
                    f"! {node} gets no answer from {name}: off, or its ports are closed (make bootstrap PHASE=firewall)"
                )
            else:
                found.append(f"! {node} does not hear {name}: {peer['how']}   see: make logs NODE={name}")
        return found

    # -- the live line ---------------------------------------------------------------------------------------------

    @property
    def eta_s(self) -> float:
        return (self.total - self.step) * self.pace_s

    def line(self, *, bar: bool = False, waited_s: float = 0.0) -> str:
        if not self.last:
            return f"{self.state}{f': {self.reason}' if self.reason else ''} · {waited_s:.0f} s"
        words = [f"step {self.step}/{self.total}"]
        if bar:
            words.append(progress_bar(self.step / max(1, self.total)))
        rows = sum(rows_of(self.last).values())
        step_s = max(1e-6, float(self.last["step_s"]))
        words += [
            f"loss {self.last['loss']:.4f}",
            f"{rows / step_s:.1f} rows/s",
            f"{self.last['tokens'] / step_s:.0f} tok/s",
        ]
        words.append(f"eta {clock(self.eta_s)}")
        words.append("  ".join(f"{name} {count}{self._card(name)}" for name, count in rows_of(self.last).items()))
        if self.state != "training":
            words.append(f"({self.state})")
        return "  ".join(words)

    def _card(self, name: str) -> str:
        """Memory and temperature, where the run computes on a card."""
        used = max(
            (float(did.get("gpu_gb") or 0) for key, did in self.last["nodes"].items() if base(key) == name), default=0
        )
        heat = [card.get("temperature.gpu", "") for card in self.gpus.get(name, [])]
        words = [*([f"{used:.1f} GB"] if used else []), *(f"{degrees} °C" for degrees in heat if degrees and used)]
        return f" ({', '.join(words)})" if words else ""


def base(name: str) -> str:
    return name.partition(":")[0]


def nodes_of(names: Any) -> list[str]:
    return list(dict.fromkeys(base(name) for name in names))


def rows_of(step: dict[str, Any]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for name, did in (step.get("nodes") or {}).items():
        rows[base(name)] = rows.get(base(name), 0) + int(did["rows"])
    return rows


def first(text: str) -> str:
    return (text.strip().splitlines() or ["no word was left"])[0]


def clock(seconds: float) -> str:
    hours, rest = divmod(int(max(0, seconds)), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}"


def progress_bar(part: float) -> str:
    filled = round(min(1.0, part) * BAR)
    return "━" * filled + "─" * (BAR - filled)


# -- reading from the nodes ----------------------------------------------------------------------------------------


class Follower:
    """Feeds a story from one living node at a time. `tell` gets every line worth keeping, `tick` runs each 0.5 s."""

    def __init__(self, nodes: list[Node], story: Story, tell: Callable[[str], None], tick: Callable[[], None]) -> None:
        self.nodes, self.story, self.tell, self.tick = nodes, story, tell, tick
        self.place = 0
        self.heard = 0.0
        self.off_since = 0.0
        self.news: queue.Queue[bytes] = queue.Queue()
        self.process: subprocess.Popen[bytes] | None = None
        self.silent_told = ""

    def follow(self, *, until_proven: bool = False, limit_s: float = 0.0) -> Ended | None:
        """Until the run ends; or until its first step is proven, which is None."""
        began = time.monotonic()
        try:
            while not self.story.ended:
                if self.process is None:
                    self._connect()
                self._read()
                self.tick()
                if until_proven and self.story.proven:
                    return None
                if limit_s and time.monotonic() - began > limit_s:
                    raise TimeoutError
        finally:
            self._drop()
        return self.story.ended

    @property
    def node(self) -> Node:
        return self.nodes[self.place % len(self.nodes)]

    def _connect(self) -> None:
        try:
            process = self.node.events(self.story.run)
        except Silent:
            self._next()
            return
        self.process, self.heard, self.off_since = process, time.monotonic(), 0.0
        self.news = queue.Queue()
        threading.Thread(target=_pump, args=(process, self.news), daemon=True).start()

    def _read(self) -> None:
        end = time.monotonic() + 0.5
        if not self.process:  # without a network of our own each try fails at once
            time.sleep(0.5)
        while self.process and (left := end - time.monotonic()) > 0:
            try:
                line = self.news.get(timeout=left)
            except queue.Empty:
                break
            if not line:
                self._next()
                return
            self.heard = time.monotonic()
            self._take(line)
        if self.process and time.monotonic() - self.heard > SILENT_S:
            self._next()

    def _take(self, line: bytes) -> None:
        kind, _, text = line.decode(errors="replace").partition(" ")
        try:
            facts = json.loads(text)
        except ValueError:
            return
        self.silent_told = ""
        for said in self.story.take(self.node.name, kind, facts):
            self.tell(said)
        if kind == "now" and not self.story.ended:
            self._notice_end(facts)

    def _notice_end(self, facts: dict[str, Any]) -> None:
        """No process is left on this node: another may still train; if none does, it was stopped or never began."""
        if facts["on"] or facts.get("wanted"):
            self.off_since = 0.0
            return
        self.off_since = self.off_since or time.monotonic()
        if time.monotonic() - self.off_since < 3:
            return
        answers, silent = ask_all(self.nodes, lambda node: node.status())
        on = [name for name, look in answers.items() if look["on"] and look["run"] == self.story.run]
        if on:
            self._next(to=on[0])
        elif silent and any(name in self.story.members for name in silent) and len(silent) * 2 > len(self.nodes):
            self._next()
        else:
            words = str(facts.get("words") or "").strip()
            self.story.ended = self._stopped(words)

    def _stopped(self, words: str) -> Ended:
        run, step = self.story.run, self.story.step
        if step and not self.story.failure:
            return Ended(True, (f"stopped at step {step} · go on with: make launch RESUME={run}",))
        if self.story.failure:
            return Ended(False, tuple(self.story._cause("")))
        lines = words.splitlines() or ["it left no word"]
        return Ended(False, (f"run {run} ended before its first step: {lines[-1]}", "see: make logs"))

    def _next(self, to: str = "") -> None:
        self._drop()
        names = [node.name for node in self.nodes]
        self.place = names.index(to) if to else self.place + 1
        if not to and self.place % len(self.nodes) == 0:
            answers = ask_all(self.nodes, lambda node: node.status())[0]
            if not answers and self.silent_told != "all":
                self.silent_told = "all"
                self.tell("… no node answers; the run goes on without us, and this goes on looking")
            on = [name for name, look in answers.items() if look["on"]]
            self.place = names.index(on[0]) if on else self.place

    def _drop(self) -> None:
        if self.process:
            end_group(self.process)
            self.process = None


def _pump(process: subprocess.Popen[bytes], news: queue.Queue[bytes]) -> None:
    assert process.stdout
    for line in process.stdout:
        news.put(line.rstrip(b"\n"))
    news.put(b"")


def end_group(process: subprocess.Popen[bytes]) -> None:
    """Ours alone: a node's stream has a session of its own."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()
