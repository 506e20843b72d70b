"""The agents' heartbeat: every node asks every other one twice a second, and at once when something changed.

A line and its answer, each `MAC JSON`. The MAC (HMAC-SHA256, keyed with the token) covers the whole message, and an
answer repeats the asker's random number: nobody without the token can take part, nothing old can be replayed.

When a peer counts as lost
    absent   not even its kernel takes the connection (power, cable, sleep): TIMING.rounds in a row and absent_s
    mute     its kernel does, its agent does not answer (hung, or starved by load): TIMING.rounds in a row and mute_s
A round that this node itself was late for proves nothing and is not counted.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.cluster.agent_surroundings import Outside
from train.cluster.network import Link
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notice_ledger import Ledger
from train.cluster.timing import TIMING
from train.plan.launch.cluster_config import ClusterConfig, Member


@dataclass(frozen=True, slots=True)
class Missed:
    """Why a round brought no answer."""

    how: str
    connected: bool = False
    machine: bool = True
    """Whether its machine gave any sign."""


NOTHING = Missed("does not answer", machine=False)
NO_AGENT = Missed("its machine answers, but no agent runs on it")
MUTE = Missed("takes connections but does not answer", connected=True)
UNREADABLE = Missed("its answer cannot be read", connected=True)
OF_ANOTHER_LAUNCH = Missed("belongs to another launch")
OF_ANOTHER_VERSION = Missed("runs another version of the agent")


@dataclass
class Peer:
    status: NodeStatus | None = None
    at: float = 0.0
    """When it was heard last."""
    answered_at: float = 0.0
    """When it answered last."""
    since: float = 0.0
    """Since when it has been reachable without a break."""
    beat: tuple[int, int] = (0, 0)
    answered_boot: int = 0
    """Which life of its agent has answered a number of ours: only that one is believed unasked."""
    absent_rounds: int = 0
    mute_rounds: int = 0
    how: str = "no answer yet"
    machine: bool = True
    """False where its machine itself gave no sign in the last round."""
    no_agent_since: float | None = None
    """Since when its machine answers without an agent of this run on it."""

    def answered(self, status: NodeStatus, at: float, beat: tuple[int, int]) -> None:
        self.heard(status, at, beat)
        self.answered_at, self.absent_rounds, self.no_agent_since = at, 0, None
        self.how, self.machine = "answers", True

    def heard(self, status: NodeStatus, at: float, beat: tuple[int, int]) -> None:
        """Takes in a status, also one unasked: the agent lives; that its machine is reachable only an answer shows."""
        if not self.reachable(at):
            self.since = at
        self.status, self.at, self.beat, self.mute_rounds = status, at, beat, 0

    def missed(self, at: float, why: Missed) -> None:
        self.absent_rounds += 0 if why.connected else 1
        self.mute_rounds += 1
        self.how, self.machine = why.how, why.machine
        self.no_agent_since = (self.no_agent_since or at) if why is NO_AGENT else None

    def lost(self, at: float) -> bool:
        absent = self.absent_rounds >= TIMING.rounds and at - self.answered_at > TIMING.absent_s
        return absent or (self.mute_rounds >= TIMING.rounds and at - self.at > TIMING.mute_s)

    def reachable(self, at: float) -> bool:
        return self.status is not None and not self.lost(at)

    def facts(self, at: float) -> dict[str, object]:
        """This peer as agent.json shows it."""
        silent_s = round(at - self.at, 1) if self.at else None
        status = {"condition": "", "cause": "", "step": 0} if self.status is None else vars(self.status)
        reported = {name: status[name] for name in ("condition", "cause", "step")}
        seen_here = {"answers": self.reachable(at), "silent_s": silent_s, "how": self.how, "machine": self.machine}
        return seen_here | reported


class Heartbeat:
    """Asks the peers and answers them with this node's status; `news` is set when a peer's status changes, and `woke`
    too when this machine was away."""

    def __init__(self, config: ClusterConfig, status: Callable[[], NodeStatus], outside: Outside) -> None:
        self.config, self.status, self.network, self.clock = config, status, outside.network, outside.clock
        self.news, self.woke = self.clock.event(), self.clock.event()
        self.lock = threading.Lock()
        self.peers = {node.name: Peer() for node in config.nodes if node.name != config.node}
        self.boot, self.beats = int(self.clock.wall() * 1e9), 0
        self.packed: tuple[NodeStatus | None, str] = None, ""
        self.ask_now = {name: self.clock.event() for name in self.peers}

    def start(self) -> None:
        self.network.serve(self.config.of(self.config.node).address, self.config.presence_port, self._answer)
        self.clock.start(self._notice_pauses)
        for name in self.peers:
            self.clock.start(self._ask_for_ever, self.config.of(name))

    def send_now(self) -> None:
        """Asks all peers at once, as something changed here, and does not wait for the next round."""
        for event in self.ask_now.values():
            event.set()

    def snapshot(self) -> dict[str, Peer]:
        with self.lock:
            return {name: replace(peer) for name, peer in self.peers.items()}

    def forget(self) -> None:
        """Forgets all statuses after a pause: every peer must answer again."""
        with self.lock:
            for peer in self.peers.values():
                peer.status, peer.answered_boot, peer.how = None, 0, "no answer since this node woke"

    # -- the wire ------------------------------------------------------------------------------------------------

    def pack(self, nonce: str) -> bytes:
        self.beats += 1
        packed, status = self.packed, self.status()
        if packed[0] is not status:  # often the same for many rounds
            packed = self.packed = status, json.dumps(asdict(status))
        body = json.dumps({"from": self.config.node, "boot": self.boot, "beat": self.beats, "nonce": nonce})
        text = f'{body[:-1]}, "status": {packed[1]}}}'.encode()
        return self._mac(text) + b" " + text + b"\n"

    def unpack(self, line: bytes) -> dict[str, Any] | None:
        mac, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or not hmac.compare_digest(mac, self._mac(text)):
            return None
        body: dict[str, Any] = json.loads(text)
        return body if body.get("from") in self.peers else None

    def _mac(self, text: bytes) -> bytes:
        return hmac.digest(self.config.token.encode(), text, "sha256").hex().encode()

    def receive(self, body: dict[str, Any], *, answered: bool) -> None:
        """Takes in a peer's status. One that it sends unasked must be newer than all before: it could be a replay."""
        beat = (int(body["boot"]), int(body["beat"]))
        status = from_json(body["status"])
        with self.lock:
            peer = self.peers[body["from"]]
            # An answer repeats a number of ours and is fresh; only one that was overtaken is dropped.
            old = beat <= peer.beat if not answered else beat[0] == peer.beat[0] and beat < peer.beat
            if status.name != body["from"] or old:
                return
            if answered:
                peer.answered_boot = beat[0]
            elif peer.answered_boot != beat[0]:  # perhaps a recording, from before this listener started
                self.ask_now[body["from"]].set()
                return
            changed = peer.status != status
            (peer.answered if answered else peer.heard)(status, self.clock.now(), beat)
        if changed:
            self.news.set()

    def _notice_pauses(self) -> None:
        """Checks the clock in a thread of its own: only a sleeping, frozen or starved machine makes it late."""
        last = self.clock.now()
        while True:
            self.clock.sleep(TIMING.ask_s)
            if self.clock.now() - last > TIMING.pause_s:
                self.woke.set()
                self.news.set()
            last = self.clock.now()

    def _ask_for_ever(self, node: Member) -> None:
        while True:
            self.ask_now[node.name].clear()
            began = self.clock.now()
            missed = self._ask(node)
            took = self.clock.now() - began
            if missed and took < TIMING.reply_s + TIMING.late_s:
                with self.lock:
                    self.peers[node.name].missed(began, missed)
            self.ask_now[node.name].wait(max(0.02, TIMING.ask_s - took))

    def _ask(self, node: Member) -> Missed | None:
        """One round: what went wrong, if anything did."""
        deadline = self.clock.now() + TIMING.reply_s
        connected = False
        nonce = secrets.token_hex(8)
        try:
            with self.network.connect(node.address, self.config.presence_port, TIMING.reply_s) as link:
                connected = True
                link.send(self.pack(nonce), deadline)
                body = self.unpack(link.line(deadline))
        except ConnectionRefusedError:
            return NO_AGENT
        except OSError:
            return MUTE if connected else NOTHING
        except ValueError:
            return UNREADABLE
        if body is None or body.get("nonce") != nonce or body["from"] != node.name:
            return OF_ANOTHER_LAUNCH
        try:
            self.receive(body, answered=True)
        except (KeyError, TypeError, ValueError):
            return OF_ANOTHER_VERSION
        return None

    def _answer(self, link: Link) -> None:
        deadline = self.clock.now() + TIMING.reply_s
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if (body := self.unpack(link.line(deadline))) is not None:
                self.receive(body, answered=False)
                link.send(self.pack(str(body["nonce"])), deadline)


def from_json(facts: dict[str, Any]) -> NodeStatus:
    generation, verdict = facts["generation"], facts["verdict"]
    return NodeStatus(
        **facts
        | {
            "generation": Generation(**generation | {"members": tuple(generation["members"])}) if generation else None,
            "verdict": RunEnd(**verdict) if verdict else None,
            "reachable": tuple(facts["reachable"]),
            "ledger": Ledger.of(facts["ledger"]),
        }
    )
