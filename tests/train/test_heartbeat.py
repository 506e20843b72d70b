"""Agents believe their own launch and nobody else; silence, refusal and nonsense are told apart."""

import json
import secrets
import socket
import threading
import time
from dataclasses import asdict, replace

from tests.support import pace
from train.cluster.agent_surroundings import CLOCK, Outside
from train.cluster.heartbeat import MUTE, NOTHING, Heartbeat, Peer, from_json
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notice_ledger import Ledger, Loss
from train.cluster.timing import TIMING
from train.plan.launch.cluster_config import ClusterConfig, Member


def network(size: int = 2) -> list[ClusterConfig]:
    net, port = 1 + secrets.randbelow(250), 29_000 + secrets.randbelow(1_000)
    nodes = tuple(Member(name=f"n{i}", address=f"127.1.{net}.{i + 1}") for i in range(size))
    return [ClusterConfig(run="r", node=n.name, token="secret", nodes=nodes, presence_port=port) for n in nodes]


def beating(config: ClusterConfig, **words) -> Heartbeat:
    return Heartbeat(config, lambda: NodeStatus(name=config.node, **words), Outside())


def started(config: ClusterConfig, **words) -> Heartbeat:
    one = beating(config, **words)
    one.start()
    return one


def alive(one: Heartbeat) -> dict[str, Peer]:
    return {name: peer for name, peer in one.snapshot().items() if peer.reachable(CLOCK.now())}


def test_two_reach_each_other():
    a, b = network()
    one, _ = started(a, step=7), started(b, number=3)
    pace.until(lambda: alive(one), 8)
    assert alive(one)["n1"].status == NodeStatus(name="n1", number=3)


def test_another_launch_is_not_ours():
    a, b = network()
    one = started(a)
    other = started(ClusterConfig(**{f: getattr(b, f) for f in b.__dataclass_fields__} | {"token": "other"}))
    asked = lambda: {one.snapshot()["n1"].how, other.snapshot()["n0"].how}  # noqa: E731
    pace.until(lambda: "no answer yet" not in asked(), 8)
    assert not alive(one) and not alive(other)


def test_an_agent_of_the_version_before_is_named_and_trains_with_its_own_kind():
    """Its workers have no key of the store: with it each generation would wait in vain, and the eighth end the run."""
    a, b = network()
    one, other = beating(a), beating(b)
    now = other.pack

    def before(nonce: str) -> bytes:
        text = now(nonce).partition(b" ")[2].rstrip(b"\n").replace(b'"status": {', b'"said": {')
        return other._mac(text) + b" " + text + b"\n"

    other.pack = before
    one.start()
    other.start()
    pace.until(lambda: one.snapshot()["n1"].how == "runs another version of the agent", 8)
    assert not alive(one) and not alive(other)


def test_a_replayed_status_is_not_believed():
    a, b = network()
    one, other = beating(a), beating(b)
    first = one.unpack(other.pack("x"))
    later = one.unpack(other.pack("y"))
    one.receive(later, answered=True)
    at = one.peers["n1"].at
    one.receive(first, answered=False)
    assert one.peers["n1"].at == at
    forged = other.pack("z").replace(b'"step": 0', b'"step": 9')
    assert one.unpack(forged) is None


def test_a_recording_is_no_life_for_a_listener_that_has_just_started():
    """A status counts unasked only from an agent that has answered a number of ours; until then it is asked."""
    a, b = network()
    other = beating(b)
    recorded = [other.pack("x") for _ in range(3)]
    one = beating(a)
    for words in recorded:
        one.receive(one.unpack(words), answered=False)
    assert not alive(one) and one.ask_now["n1"].is_set()
    one.receive(one.unpack(other.pack("y")), answered=True)
    assert alive(one)
    began_again = beating(b, number=1)
    one.receive(one.unpack(began_again.pack("z")), answered=False)
    assert alive(one)["n1"].status.number == 0
    one.forget()
    one.receive(one.unpack(other.pack("w")), answered=False)
    assert not alive(one)


def answers(config: ClusterConfig, answer: bytes) -> None:
    """With these words, or with none; the line stays open."""
    server = socket.create_server((config.of(config.node).address, config.presence_port))

    def serve():
        while True:
            held.append(server.accept()[0])
            held[-1].sendall(answer)

    held: list[socket.socket] = []
    threading.Thread(target=serve, daemon=True).start()


def test_what_does_not_answer_is_lost_in_time_and_said_how():
    a, silent, nonsense, refused = network(4)
    one, lost_s = started(a), {}
    for other in (silent, nonsense, refused):
        one.receive(one.unpack(beating(other).pack("x")), answered=True)
    answers(silent, b"")
    answers(nonsense, b"hello\n")
    began, began_s = time.monotonic(), pace.now()

    def all_lost() -> bool:
        for name in one.snapshot().keys() - alive(one).keys() - lost_s.keys():
            lost_s[name] = time.monotonic() - began, pace.now() - began_s
        return len(lost_s) == 3

    pace.until(all_lost, 12)
    how = {name: peer.how for name, peer in one.snapshot().items()}
    assert lost_s["n1"][0] > 4.5 and lost_s["n1"][1] < 9, "a machine whose kernel answers is given longer"
    assert lost_s["n2"][1] < 4.5 and lost_s["n3"][1] < 4.5
    assert {name for name, peer in one.snapshot().items() if peer.no_agent_since} == {"n3"}
    assert "does not answer" in how["n1"] and "another launch" in how["n2"] and "no agent" in how["n3"]


def test_who_is_heard_but_cannot_be_reached_is_lost():
    """As where a firewall comes up on it: it asks, and takes no connection. No group trains over such a link."""
    peer = Peer()
    peer.answered(NodeStatus(name="b"), at=100.0, beat=(1, 1))
    for at in (100.5, 101.5, 102.5):
        peer.missed(0.0, NOTHING)
        peer.heard(NodeStatus(name="b"), at, beat=(1, 2))
    assert peer.lost(103.5) and not peer.lost(102.9)
    busy = Peer()
    busy.answered(NodeStatus(name="b"), at=100.0, beat=(1, 1))
    for at in (101.0, 103.0, 105.0):
        busy.missed(0.0, MUTE)
        busy.heard(NodeStatus(name="b"), at, beat=(1, 2))
    assert not busy.lost(106.0), "its agent lives, and its machine takes connections"


def test_rounds_that_this_node_was_late_for_prove_nothing():
    peer = Peer()
    peer.answered(NodeStatus(name="b"), at=100.0, beat=(1, 1))
    assert not peer.lost(200.0), "silent for long, but nobody asked"
    for _ in range(TIMING.rounds):
        peer.missed(0.0, NOTHING)
    assert peer.lost(103.5) and not peer.lost(102.0)


def test_a_status_is_the_same_behind_the_wire():
    ours = Generation(number=2, host="a", members=("a", "b"), port=5)
    ledger = Ledger(number=2, members=("a",), lost=(Loss(name="plan", number=2, time=1.5, reason="s"),), sent=("done",))
    status = NodeStatus(name="a", number=2, generation=ours, reachable=("b",), verdict=RunEnd(done=False, reason="x"))
    status = replace(status, ledger=ledger, can_send=True, sending="lost-2-plan")
    for it in (status, replace(status, generation=None, verdict=None)):
        assert from_json(json.loads(json.dumps(asdict(it)))) == it
