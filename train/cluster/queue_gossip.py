"""A node's queue of runs, kept on its disk and told to the other machines of the queue, whichever run is on.

Every two seconds, and at once when something changed, it tells each of them all that it knows, and hears the same: a
line and its answer, each `MAC JSON`. The MAC is keyed with the queue's own secret, as agents of two runs share no
other. Nothing has to be fresh: what is merged (train/runlog/queue_order.py) changes nothing when it comes again.
"""

from __future__ import annotations

import contextlib
import hmac
import threading
from dataclasses import replace
from pathlib import Path

from train.cluster.agent_surroundings import Outside
from train.cluster.network import Link
from train.cluster.node_status import RunEnd
from train.cluster.timing import TIMING
from train.layout import QUEUE_PORT
from train.runlog import paths
from train.runlog.queue_order import End, Queue

LONGEST_REASON = 200


class QueueKeeper:
    def __init__(self, home: Path, node: str, launch: str, outside: Outside) -> None:
        """`launch`: of the run whose files the node runs by now."""
        self.node, self.launch, self.outside = node, launch, outside
        self.list, self.asked = home / paths.QUEUE_LIST, home / paths.QUEUE_ASKED
        self.lock = threading.Lock()
        self.news = outside.clock.event()
        self.talks_at = ""
        self.refusals: dict[str, int] = {}
        """How often in a row a machine answered, and nobody there kept a queue; since anybody did."""
        self.asked_ns = 0
        self.has_group = False
        """Whether this node trains."""
        self.has_left = self.is_asked_to_end = False
        """Whether this run's agent was told that its turn is over; and whether by a signal, of systemd or a person."""
        self.queue = self.saved = self._read(self.list)
        self.look()

    # -- what is known -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Takes in what people changed, and keeps on the disk what is new."""
        with contextlib.suppress(OSError):
            if (changed := self.outside.disk.changed_ns(self.asked)) != self.asked_ns:
                self.asked_ns = changed
                self.take(self._read(self.asked))
        queue = self.queue
        if queue != self.saved:
            with contextlib.suppress(OSError):  # a full disk: it is tried again
                self.outside.disk.write(self.list, queue.to_json())
                self.saved = queue
        if queue.key and not self.talks_at and self.node in queue.addresses():
            self._talk(queue.addresses()[self.node])

    def take(self, other: Queue) -> None:
        with self.lock:
            before, self.queue = self.queue, self.queue.merged(other)
        if self.queue != before:
            self.news.set()

    def _read(self, file: Path) -> Queue:
        with contextlib.suppress(OSError, ValueError):
            return Queue.of_json(self.outside.disk.read(file))
        return Queue()

    # -- about the run whose files are here --------------------------------------------------------------------------

    def verdict(self) -> RunEnd | None:
        """How this run has ended elsewhere, without this node."""
        self.look()
        entry = self.queue.of(self.launch)
        if entry is None or entry.end is None or entry.end.how not in ("done", "failed"):
            return None
        return RunEnd(done=entry.end.how == "done", reason=entry.end.reason)

    def is_to_leave(self) -> bool:
        """Whether somebody stopped or removed this run, or moved another one before it."""
        entry = self.queue.of(self.launch)
        if entry is None:
            return False
        leaves = entry.end.how in ("stopped", "removed") if entry.end else self.queue.turn() != entry
        self.has_left = self.has_left or leaves
        return leaves

    def is_alone(self) -> bool:
        """Whether the queue is over elsewhere: keepers of one that continues are back within seconds, as in
        membership.is_over_elsewhere(). Counted, as a machine that sleeps asks nobody. Who trains is not alone, and only
        machines count that some run still waits for: others may have no agent all night."""
        if self.has_group:
            self.refusals = {}
        others = {name for entry in self.queue.waiting() for name in entry.names} - {self.node}
        refusals = self.refusals.copy()  # the thread that asks changes it meanwhile
        counts = [count for name, count in refusals.items() if name in others]
        return min(counts, default=0) * TIMING.queue_ask_s > TIMING.over_s

    def ended(self, verdict: RunEnd) -> None:
        end = End(
            how="done" if verdict.done else "failed",
            time=round(self.outside.clock.wall(), 3),
            reason=verdict.reason[:LONGEST_REASON],
        )
        self.take(self.queue.ended(self.launch, end))
        self.look()

    def is_last(self) -> bool:
        """Whether no other run waits for this machine."""
        return not any(entry.launch != self.launch and self.node in entry.names for entry in self.queue.waiting())

    # -- the wire ----------------------------------------------------------------------------------------------------

    def _talk(self, address: str) -> None:
        with contextlib.suppress(OSError):  # an older agent is still leaving: it is tried again
            self.outside.network.serve(address, QUEUE_PORT, self._answer)
            self.talks_at = address
            self.outside.clock.start(self._ask_for_ever)

    def pack(self) -> bytes:
        text = replace(self.queue, key="").to_json().encode()  # whoever listens must not learn it
        return self._mac(text) + b" " + text + b"\n"

    def unpack(self, line: bytes) -> Queue:
        """ValueError where it is of somebody else."""
        mac, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or not hmac.compare_digest(mac, self._mac(text)):
            raise ValueError("its MAC is not of this queue")
        return Queue.of_json(text)

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self.queue.key.encode(), text, "sha256").hex().encode()

    def _ask_for_ever(self) -> None:
        while True:
            self.news.clear()
            for name, address in self.queue.addresses().items():
                if name != self.node:
                    self._ask(name, address)
            self.news.wait(TIMING.queue_ask_s)

    def _ask(self, name: str, address: str) -> None:
        deadline, refusals = self.outside.clock.now() + TIMING.reply_s, self.refusals.pop(name, 0)
        with contextlib.suppress(OSError, ValueError):
            try:
                with self.outside.network.connect(address, QUEUE_PORT, TIMING.reply_s) as link:
                    link.send(self.pack(), deadline)
                    self._hear(link.line(deadline))
            except ConnectionRefusedError:
                self.refusals[name] = refusals + 1

    def _hear(self, line: bytes) -> None:
        self.take(self.unpack(line))
        self.refusals = {}

    def _answer(self, link: Link) -> None:
        deadline = self.outside.clock.now() + TIMING.reply_s
        with contextlib.suppress(OSError, ValueError):
            self._hear(link.line(deadline))
            link.send(self.pack(), deadline)
