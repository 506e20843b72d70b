"""The agents' heartbeat: every node asks every other one twice a second, and at once when something changed.

A line and its answer, each `MAC JSON`. The MAC (HMAC-SHA256, keyed with the token) covers the whole message, and an
answer repeats the asker's random number: nobody without the token can take part, nothing old can be replayed.

When a peer counts as lost
    absent   not even its kernel takes the connection (power, cable, sleep): 3 rounds in a row and 3 s
    mute     its kernel does, its agent does not answer (hung, or starved by load): 3 rounds in a row and 5 s
A round that this node itself was late for proves nothing and is not counted.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from train.cluster.ledger import Ledger
from train.cluster.membership import Generation, NodeStatus, Verdict
from train.plan.cluster_config import ClusterConfig, Member

EVERY_S = 0.5
REPLY_S = 1.0
LATE_S = 0.5
ROUNDS = 3
ABSENT_S = 3.0
MUTE_S = 5.0
PAUSE_S = MUTE_S + 1
"""Away for longer than the others wait: they continue without this node, so its generation is void."""
LONGEST = 1 << 16
WIRE = {"number": "epoch", "generation": "plan", "reachable": "hears"}
"""What a status calls some things between nodes."""
OURS = {wire: ours for ours, wire in WIRE.items()}


def now() -> float:
    """Seconds that also pass while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass
class Peer:
    status: NodeStatus | None = None
    at: float = 0.0
    since: float = 0.0
    """Reachable without a break since then."""
    beat: tuple[int, int] = (0, 0)
    answered_boot: int = 0
    """Which life of its agent has answered a number of ours: only that one is believed unasked."""
    absent_rounds: int = 0
    mute_rounds: int = 0
    how: str = "no answer yet"

    def answered(self, status: NodeStatus, at: float, beat: tuple[int, int]) -> None:
        if not self.reachable(at):
            self.since = at
        self.status, self.at, self.beat, self.how = status, at, beat, "answers"
        self.absent_rounds = self.mute_rounds = 0

    def missed(self, connected: bool, how: str) -> None:
        self.absent_rounds += 0 if connected else 1
        self.mute_rounds += 1
        self.how = how

    def lost(self, at: float) -> bool:
        silent_s = at - self.at
        absent = self.absent_rounds >= ROUNDS and silent_s > ABSENT_S
        return absent or (self.mute_rounds >= ROUNDS and silent_s > MUTE_S)

    def reachable(self, at: float) -> bool:
        return self.status is not None and not self.lost(at)

    def facts(self, at: float) -> dict[str, Any]:
        """For agent.json."""
        silent_s = round(at - self.at, 1) if self.at else None
        status = {"condition": "", "cause": "", "step": 0} if self.status is None else vars(self.status)
        own = {name: status[name] for name in ("condition", "cause", "step")}
        return {"answers": self.reachable(at), "silent_s": silent_s, "how": self.how, **own}


class Heartbeat:
    """Asks the peers and answers them with this node's status; `news` is set when a peer's status changes, and `woke`
    too when this machine was away."""

    def __init__(self, config: ClusterConfig, status: Callable[[], NodeStatus]) -> None:
        self.config = config
        self.status = status
        self.news, self.woke = threading.Event(), threading.Event()
        self.lock = threading.Lock()
        self.peers = {node.name: Peer() for node in config.nodes if node.name != config.node}
        self.boot, self.beats = time.time_ns(), 0
        self.ask_now = {name: threading.Event() for name in self.peers}

    def start(self) -> None:
        server = _Server((self.config.of(self.config.node).address, self.config.presence_port), self)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        threading.Thread(target=self._notice_pauses, daemon=True).start()
        for name in self.peers:
            threading.Thread(target=self._ask_for_ever, args=(self.config.of(name),), daemon=True).start()

    def send_now(self) -> None:
        """Something changed here: do not wait for the next round."""
        for event in self.ask_now.values():
            event.set()

    def snapshot(self) -> dict[str, Peer]:
        with self.lock:
            return {name: replace(peer) for name, peer in self.peers.items()}

    def forget(self) -> None:
        """After a pause: every peer must answer again."""
        with self.lock:
            for peer in self.peers.values():
                peer.status, peer.answered_boot, peer.how = None, 0, "no answer since this node woke"

    # -- the wire ------------------------------------------------------------------------------------------------

    def pack(self, nonce: str) -> bytes:
        self.beats += 1
        body = {"from": self.config.node, "boot": self.boot, "beat": self.beats, "nonce": nonce}
        text = json.dumps(body | {"said": to_json(self.status())}).encode()
        return self._mac(text) + b" " + text + b"\n"

    def unpack(self, line: bytes) -> dict[str, Any] | None:
        mac, _, text = line.rstrip(b"\n").partition(b" ")
        if not line.endswith(b"\n") or not hmac.compare_digest(mac, self._mac(text)):
            return None
        body: dict[str, Any] = json.loads(text)
        return body if body.get("from") in self.peers else None

    def _mac(self, text: bytes) -> bytes:
        return hmac.new(self.config.token.encode(), text, hashlib.sha256).hexdigest().encode()

    def receive(self, body: dict[str, Any], *, answered: bool) -> None:
        """A peer's status. One that it sends unasked must be newer than all before: it could be a replay."""
        beat = (int(body["boot"]), int(body["beat"]))
        status = from_json(body["said"])
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
            peer.answered(status, now(), beat)
        if changed:
            self.news.set()

    def _notice_pauses(self) -> None:
        """A thread that only checks the clock: nothing but a sleeping, frozen or starved machine makes it late."""
        last = now()
        while True:
            time.sleep(0.5)
            if now() - last > PAUSE_S:
                self.woke.set()
                self.news.set()
            last = now()

    def _ask_for_ever(self, node: Member) -> None:
        while True:
            self.ask_now[node.name].clear()
            began = now()
            connected, how = self._ask(node)
            took = now() - began
            if how and took < REPLY_S + LATE_S:
                with self.lock:
                    self.peers[node.name].missed(connected, how)
            self.ask_now[node.name].wait(max(0.02, EVERY_S - took))

    def _ask(self, node: Member) -> tuple[bool, str]:
        """One round: whether the machine took the connection, and what went wrong, if anything did."""
        deadline = now() + REPLY_S
        connected = False
        nonce = secrets.token_hex(8)
        try:
            with socket.create_connection((node.address, self.config.presence_port), REPLY_S) as link:
                connected = True
                link.settimeout(max(0.05, deadline - now()))
                link.sendall(self.pack(nonce))
                body = self.unpack(_line(link, deadline))
        except ConnectionRefusedError:
            return False, "its machine answers, but no agent runs on it"
        except OSError:
            return connected, "takes connections but does not answer" if connected else "does not answer"
        except ValueError:
            return True, "its answer cannot be read"
        if body is None or body.get("nonce") != nonce or body["from"] != node.name:
            return False, "belongs to another launch"
        try:
            self.receive(body, answered=True)
        except (KeyError, TypeError, ValueError):
            return False, "runs another version of the agent"
        return True, ""


class _Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], heartbeat: Heartbeat) -> None:
        self.heartbeat = heartbeat
        super().__init__(address, _Answer)

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.IPPROTO_IP, 15, 1)  # IP_FREEBIND: the cable may still be out
        super().server_bind()

    def handle_error(self, *_: Any) -> None:
        """A stranger, or a peer that gave up: nothing to report."""


class _Answer(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        heartbeat: Heartbeat = self.server.heartbeat  # type: ignore[attr-defined]
        self.request.settimeout(REPLY_S)
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            body = heartbeat.unpack(_line(self.request, now() + REPLY_S))
            if body is None:
                return
            heartbeat.receive(body, answered=False)
            self.request.sendall(heartbeat.pack(str(body["nonce"])))


def _line(link: socket.socket, deadline: float) -> bytes:
    data = b""
    while not data.endswith(b"\n") and len(data) < LONGEST:
        link.settimeout(max(0.01, deadline - now()))
        if not (more := link.recv(4096)) or now() > deadline:
            raise TimeoutError
        data += more
    return data


def to_json(status: NodeStatus) -> dict[str, Any]:
    return _rename(asdict(status), WIRE)


def from_json(facts: dict[str, Any]) -> NodeStatus:
    facts = _rename(facts, OURS)
    generation, verdict = facts["generation"], facts["verdict"]
    return NodeStatus(
        **facts
        | {
            "generation": Generation(**generation | {"members": tuple(generation["members"])}) if generation else None,
            "verdict": Verdict(**verdict) if verdict else None,
            "reachable": tuple(facts["reachable"]),
            "ledger": Ledger.of(facts["ledger"]),
        }
    )


def _rename(facts: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(k, k): _rename(value, names) if isinstance(value, dict) else value for k, value in facts.items()}
