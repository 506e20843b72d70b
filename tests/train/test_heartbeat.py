"""Agents hear their own and nobody else; silence, refusal and nonsense are told apart."""

import json
import secrets
import socket
import threading
import time

import pytest

from tests.support import pace
from train.cluster import heartbeat
from train.cluster.heartbeat import Peer, Presence, from_json, to_json
from train.cluster.membership import Plan, Said, Verdict
from train.plan.cluster_config import ClusterConfig, Node


def network(size: int = 2) -> list[ClusterConfig]:
    net, port = 1 + secrets.randbelow(250), 20000 + secrets.randbelow(9000)
    nodes = tuple(Node(name=f"n{i}", address=f"127.1.{net}.{i + 1}") for i in range(size))
    return [ClusterConfig(run="r", node=n.name, token="secret", nodes=nodes, presence_port=port) for n in nodes]


def started(config: ClusterConfig, **words) -> Presence:
    one = Presence(config, lambda: Said(name=config.node, **words))
    one.start()
    return one


def test_two_hear_each_other():
    a, b = network()
    one, _ = started(a, step=7), started(b, epoch=3)
    pace.until(one.alive, 8)
    assert one.alive()["n1"].said == Said(name="n1", epoch=3)


def test_another_launch_is_not_ours():
    a, b = network()
    one = started(a)
    other = started(ClusterConfig(**{f: getattr(b, f) for f in b.__dataclass_fields__} | {"token": "other"}))
    pace.until(lambda: one.look()["n1"].how != "not heard yet", 8)
    time.sleep(1)
    assert not one.alive() and not other.alive()


def test_words_that_were_played_back_are_not_taken():
    a, b = network()
    one, other = Presence(a, lambda: Said(name="n0")), Presence(b, lambda: Said(name="n1"))
    first = one.unpack(other.pack("x", {}))
    later = one.unpack(other.pack("y", {}))
    one.take(later, answered=True)
    at = one.peers["n1"].at
    one.take(first, answered=False)
    assert one.peers["n1"].at == at
    forged = other.pack("z", {}).replace(b'"step": 0', b'"step": 9')
    assert one.unpack(forged) is None


def test_a_recording_is_no_life_for_a_listener_that_has_just_started():
    """Words count unasked only from an agent that has answered a number of ours; until then it is asked."""
    a, b = network()
    other = Presence(b, lambda: Said(name="n1"))
    recorded = [other.pack("x", {}) for _ in range(3)]
    one = Presence(a, lambda: Said(name="n0"))
    for words in recorded:
        one.take(one.unpack(words), answered=False)
    assert not one.alive() and one.hurry["n1"].is_set()
    one.take(one.unpack(other.pack("y", {})), answered=True)
    assert one.alive()
    began_again = Presence(b, lambda: Said(name="n1", epoch=1))
    one.take(one.unpack(began_again.pack("z", {})), answered=False)
    assert one.alive()["n1"].said.epoch == 0
    one.forget()
    one.take(one.unpack(other.pack("w", {})), answered=False)
    assert not one.alive()


@pytest.mark.parametrize("kind", ["silent", "nonsense", "refused"])
def test_what_does_not_answer_is_lost_in_time_and_said_how(kind):
    a, b = network()
    address = (b.nodes[1].address, b.presence_port)
    other = Presence(b, lambda: Said(name="n1"))
    one = started(a)
    one.take(one.unpack(other.pack("x", {})), answered=True)
    if kind != "refused":
        server = socket.create_server(address)
        answer = b"" if kind == "silent" else b"hello\n"

        def serve():
            while True:
                link, _ = server.accept()
                if answer:
                    link.sendall(answer)
                else:
                    held.append(link)

        held: list[socket.socket] = []
        threading.Thread(target=serve, daemon=True).start()
    began, began_s = time.monotonic(), pace.now()
    pace.until(lambda: not one.alive(), 12)
    took_s = pace.now() - began_s
    if kind == "silent":
        assert time.monotonic() - began > 4.5 and took_s < 9, "a machine whose kernel answers is given longer"
    else:
        assert took_s < 4.5
    assert {"silent": "does not answer", "nonsense": "another launch", "refused": "no agent"}[kind] in one.look()[
        "n1"
    ].how


def test_rounds_that_this_node_was_late_for_prove_nothing():
    peer = Peer()
    peer.heard(Said(name="b"), at=100.0, beat=(1, 1))
    assert not peer.lost(200.0), "silent for long, but nobody asked"
    for _ in range(heartbeat.ROUNDS):
        peer.missed(False, "does not answer")
    assert peer.lost(103.5) and not peer.lost(102.0)


def test_what_is_said_survives_the_wire():
    plan = Plan(epoch=2, host="a", members=("a", "b"), port=5)
    said = Said(name="a", plan=plan, hears=("b",), verdict=Verdict(done=False, reason="x"), begun=True)
    assert from_json(json.loads(json.dumps(to_json(said)))) == said
