"""Sends a run's notices from its nodes: a launch has brought them the address of `motley_notify`.

The host of the generation sends; where it cannot, the next of its members, and without a majority the first that is
left. A thread sends and the agent's loop only looks, so an address that does not answer delays no step. A notice counts
as sent when it is: who dies while it sends may have sent it, and another sends it again.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from train.cluster.agent_files import AgentMemory, TrainerProgress
from train.cluster.agent_surroundings import Outside
from train.cluster.membership import how_lost
from train.cluster.node_status import NodeStatus, RunEnd
from train.cluster.notice_ledger import Ledger, Loss
from train.cluster.timing import TIMING
from train.plan.launch.cluster_config import ClusterConfig
from train.runlog.secret import Secret
from train.send_notice import Notice, send

LOST_S, MAJORITY_S = 600.0, 60.0
"""How long a node is lost, or no majority is there, before that is worth a message."""


class NodeNotifier:
    def __init__(
        self,
        cluster: ClusterConfig,
        file: Path,
        memory: AgentMemory,
        outside: Outside,
        send: Callable[[str, Notice], str] = send,
    ) -> None:
        self.cluster, self.file, self.memory, self.outside, self.send = cluster, file, memory, outside, send
        self.now = outside.clock.now
        self.sending: Notice | None = None
        self.answers: queue.SimpleQueue[tuple[Notice, str]] = queue.SimpleQueue()
        self.retry_at = self.waiting_since = self.looked_at = 0.0
        self.pause_s = TIMING.retry_s
        self.lost_since: dict[Loss, float] = {}
        self.ending: Notice | None = None
        self.ended_at = 0.0

    @property
    def status(self) -> dict[str, Any]:
        """The notifier's part of NodeStatus. Whoever takes the address away ends the sending at once."""
        can = self.now() >= self.retry_at and bool(self._address())
        return {"ledger": self.memory.ledger, "can_send": can, "sending": self.sending.key if self.sending else ""}

    def end(self, verdict: RunEnd, progress: TrainerProgress) -> None:
        run = self.cluster.run
        text = f"run {run} failed: {verdict.reason}"
        if verdict.done:
            text = f"done · {progress.step} steps" + f" · loss {progress.loss:.4f}" * bool(progress.loss)
        self.ending, self.ended_at = Notice("done" if verdict.done else "failed", run, text), self.now()
        self.retry_at, self.pause_s = 0.0, TIMING.retry_s  # it cannot wait until an older message goes out

    def look(self, me: NodeStatus, peers: Mapping[str, NodeStatus], too_few: str = "") -> bool:
        """Does one round of the agent, which may say why too few answer. Whether it must wait for the last message."""
        self._hear_of_it()
        me = replace(me, **self.status)  # who has just failed leaves the next try to another
        self._note_wait(me, too_few)
        ledger = self._merge(me, peers)
        unsent = ledger.unsent(self._due(me, too_few))
        sender = first_sender(self.cluster.order, {**peers, me.name: me}, ledger)
        taken = {peer.sending for peer in peers.values()}
        if free := [notice for notice in unsent if notice.key not in taken and sender == me.name and not self.sending]:
            self._begin(free[0])
        may_wait = self.now() - self.ended_at < TIMING.notice_end_s
        return self.ending in unsent and bool(sender or self.sending) and may_wait

    def _hear_of_it(self) -> None:
        with contextlib.suppress(queue.Empty):
            notice, why = self.answers.get_nowait()
            self.sending = None
            outcome = f"not sent: {why}; the next try in {self.pause_s:.0f} s" if why else "sent"
            self.outside.say(f"{self.cluster.node}: notify  {notice.key} {outcome}")
            if why:
                self.retry_at, self.pause_s = self.now() + self.pause_s, 2 * self.pause_s
            else:
                self.retry_at, self.pause_s = 0.0, TIMING.retry_s
                self._keep(self.memory.ledger.merged(Ledger(sent=(notice.key,))))

    def _note_wait(self, me: NodeStatus, too_few: str) -> None:
        at = self.now()
        waits = me.generation is None and bool(too_few)
        if not waits or at - self.looked_at > TIMING.mute_s:  # this machine was away itself
            self.waiting_since = 0.0
        if waits:
            self.waiting_since = self.waiting_since or at
        self.looked_at = at

    def _merge(self, me: NodeStatus, peers: Mapping[str, NodeStatus]) -> Ledger:
        ledger, ours = self.memory.ledger, me.generation
        for peer in peers.values():
            ledger = ledger.merged(peer.ledger)
        if ours and ours.host == me.name and ours.number > ledger.number:
            order, why = self.cluster.order, {name: how_lost(peers.get(name)) for name in self.cluster.order}
            ledger = ledger.followed_by(ours.number, ours.members, order, why, self.outside.clock.wall())
        self._keep(ledger)
        self.lost_since = {loss: self.lost_since.get(loss, self.now()) for loss in ledger.lost}
        return ledger

    def _keep(self, ledger: Ledger) -> None:
        if ledger != self.memory.ledger:
            self.memory.ledger = ledger
            self.memory.save()

    def _due(self, me: NodeStatus, too_few: str) -> list[Notice]:
        run, ledger = self.cluster.run, self.memory.ledger
        if self.ending:
            return [self.ending]
        if me.generation:
            # By this node's own clock: that of the host which has noticed it may be hours off, or be set meanwhile.
            ages = {loss: self.now() - since for loss, since in self.lost_since.items() if loss.how != "away"}
            return [lost_notice(run, loss, age_s) for loss, age_s in ages.items() if age_s >= LOST_S]
        if self.waiting_since and self.now() - self.waiting_since >= MAJORITY_S:
            return [Notice("waiting", run, f"{me.name} waits: {too_few}", str(ledger.number))]
        return []

    def _begin(self, notice: Notice) -> None:
        with contextlib.suppress(RuntimeError):  # no thread is to be had: later
            self.outside.clock.start(self._send, notice)
            self.sending = notice

    def _send(self, notice: Notice) -> None:
        address = self._address()
        self.answers.put((notice, self.send(address, notice) if address else "the address cannot be read"))

    def _address(self) -> str:
        with contextlib.suppress(OSError, ValueError):  # none is there, it is closed to us, or torn
            return Secret.from_json(self.outside.disk.read(self.file)).messages
        return ""


def lost_notice(run: str, loss: Loss, age_s: float) -> Notice:
    text = f"{loss.name} is lost since {age_s / 60:.0f} minutes: {loss.reason}"
    return Notice("lost", run, text, f"{loss.number}-{loss.name}")


def first_sender(order: tuple[str, ...], nodes: Mapping[str, NodeStatus], ledger: Ledger) -> str:
    """The first node that answers and can send, members before others; empty where none of them can."""
    able = {name for name, node in nodes.items() if node.can_send and node.condition != "leaving"}
    return next((name for name in (*ledger.members, *order) if name in able), "")
