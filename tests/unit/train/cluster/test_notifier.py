"""Which node sends what, and when: nodes that hear of each other as in heartbeats, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from train.clock import Clock
from train.cluster.agent_files import AgentMemory, TrainerProgress
from train.cluster.agent_surroundings import Outside
from train.cluster.node_status import Generation, NodeStatus, RunEnd
from train.cluster.notifier import LOST_S, MAJORITY_S, NodeNotifier
from train.cluster.timing import TIMING
from train.plan.launch.cluster_config import ClusterConfig, Member
from train.runlog.secret import Secret
from train.send_notice import Notice, send

ALONE = "no answer from b, c; 1 of 3 are no majority, waiting"
DONE = RunEnd(done=True, reason="all 7 steps are trained")


@dataclass
class Played(Clock):
    cluster: Cluster
    node: str

    def now(self) -> float:
        return self.cluster.at

    def wall(self) -> float:
        return self.cluster.at + self.cluster.wall.get(self.node, 0.0)

    def start(self, target: Callable[..., object], *args: Any) -> None:
        target(*args)


@dataclass
class Node:
    notifier: NodeNotifier
    status: NodeStatus
    too_few: str = ""
    waits: bool = False


@dataclass
class Cluster:
    """`look` is one round: each node sees what the others published in the round before."""

    folder: Path
    at: float = 1000.0
    wall: dict[str, float] = field(default_factory=dict)
    """How far the clock of a node is off."""
    got: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)
    tries: list[str] = field(default_factory=list)
    nodes: dict[str, Node] = field(default_factory=dict)

    def add(self, name: str) -> None:
        names = ("a", "b", "c")
        members = tuple(Member(name=one, address=f"127.0.0.{i}") for i, one in enumerate(names, 1))
        config = ClusterConfig(run="r", node=name, token="t", nodes=members)
        file = self.folder / name / "secret.json"
        file.parent.mkdir(exist_ok=True)
        file.write_text(Secret(token="t", messages=f"address of {name}").to_json())
        outside = Outside(clock=Played(self, name))
        memory = AgentMemory.load(self.folder / name / "epoch.json", "t", outside)
        one = NodeNotifier(config, file, memory, outside, self.sender(name))
        self.nodes[name] = Node(one, NodeStatus(name=name))

    def sender(self, name: str) -> Callable[[str, Notice], str]:
        def send(address: str, notice: Notice) -> str:
            assert address == f"address of {name}"
            self.tries.append(name)
            if name in self.refuses:
                return "Network is unreachable"
            self.got.append(f"{name} {notice.key}: {notice.text}")
            return ""

        return send

    def generation(self, number: int, *members: str) -> None:
        for name in members:
            new = Generation(number=number, host=members[0], members=members)
            self.nodes[name].status = replace(self.nodes[name].status, generation=new)
            self.nodes[name].too_few = ""

    def idle(self, name: str, reason: str = ALONE) -> None:
        self.nodes[name].status = replace(self.nodes[name].status, generation=None)
        self.nodes[name].too_few = reason

    def ends(self, *names: str, verdict: RunEnd = DONE, loss: float = 0.0) -> None:
        for name in names:
            progress = TrainerProgress(Path("nowhere"), 0, Outside(), step=7, loss=loss)
            self.nodes[name].notifier.end(verdict, progress)

    def look(self, *names: str, rounds: int = 3) -> None:
        here = {name: self.nodes[name] for name in names}
        for _ in range(rounds):
            self.at += 0.25
            for node in here.values():
                node.status = replace(node.status, **node.notifier.status)
            statuses = {name: node.status for name, node in here.items()}
            for name, node in here.items():
                peers = {other: status for other, status in statuses.items() if other != name}
                node.waits = node.notifier.look(node.status, peers, node.too_few)

    def later(self, seconds: float, *names: str, every_s: float = 3.0) -> None:
        until = self.at + seconds
        while self.at < until:
            self.look(*names, rounds=1)
            self.at += every_s


@pytest.fixture
def three(tmp_path: Path) -> Cluster:
    cluster = Cluster(tmp_path)
    for name in ("a", "b", "c"):
        cluster.add(name)
    cluster.generation(1, "a", "b", "c")
    cluster.look("a", "b", "c")
    return cluster


def test_the_host_tells_a_loss_after_ten_minutes_and_the_next_host_does_not(three):
    three.generation(2, "a", "b")
    three.look("a", "b")
    three.later(LOST_S - 20, "a", "b")
    assert three.got == []
    three.later(60, "a", "b")
    assert three.got == ["a lost-2-c: c is lost since 10 minutes: silent"]
    three.generation(3, "b", "a")
    three.later(60, "a", "b")
    assert len(three.got) == 1
    three.generation(5, "b", "a", "c")
    three.look("a", "b", "c")
    three.generation(6, "b", "a")
    three.later(LOST_S + 60, "a", "b")
    assert three.got[1:] == ["b lost-6-c: c is lost since 10 minutes: silent"]


@pytest.mark.parametrize("hours", [-2, 0, 2])
def test_a_new_host_knows_since_when_whatever_its_clock_says(three, hours):
    """Of the first host, as of a machine that begins in 1970; the second one sends."""
    three.wall = {"a": hours * 3600.0}
    three.generation(2, "a", "b")
    three.look("a", "b")
    three.later(LOST_S / 2, "a", "b")
    three.generation(3, "b", "a")
    three.later(LOST_S / 2 - 20, "a", "b")
    assert three.got == []
    three.later(60, "a", "b")
    assert three.got == ["b lost-2-c: c is lost since 10 minutes: silent"]


def test_who_steps_aside_is_no_news_however_long(three):
    """Its agent still answers, and says so."""
    three.nodes["c"].status = replace(three.nodes["c"].status, condition="away", cause="paused", generation=None)
    three.generation(2, "a", "b")
    three.look("a", "b", "c")
    assert [loss.how for loss in three.nodes["a"].notifier.memory.ledger.lost] == ["away"]
    three.later(2 * LOST_S, "a", "b", "c")
    assert three.got == []


def test_who_waits_for_a_majority_says_so_after_a_minute(three):
    three.idle("a", "")  # it waits for b to begin
    three.later(2 * MAJORITY_S, "a")
    three.idle("a")
    three.later(MAJORITY_S - 10, "a")
    assert three.got == []
    three.later(300, "a")
    assert three.got == [f"a waiting-1: a waits: {ALONE}"]


def test_a_sleep_is_no_wait(three):
    three.idle("a")
    three.look("a")
    three.at += 8 * 3600
    three.look("a")
    assert three.got == []


def test_a_node_that_is_cut_off_tells_its_wait_and_no_loss(three):
    three.generation(2, "a", "b")
    three.look("a", "b")
    three.idle("a")
    three.later(LOST_S + 60, "a")
    assert [line.split()[1] for line in three.got] == ["waiting-2:"]


@pytest.mark.parametrize("how", ["refuses", "has no address", "is gone"])
def test_where_the_host_cannot_the_next_node_sends(three, how):
    left = ["b", "c"] if how == "is gone" else ["a", "b", "c"]
    three.refuses = {"a"}
    if how == "has no address":
        three.nodes["a"].notifier.file.unlink()
    three.ends(*left, loss=3.0)
    three.look(*left, rounds=6)
    assert three.got == ["b done: done · 7 steps · loss 3.0000"]
    assert not any(three.nodes[name].waits for name in left)
    three.later(3 * TIMING.retry_s, *left)
    assert len(three.got) == 1


def test_what_nobody_can_send_is_tried_again_and_the_end_waits_for_nobody(three):
    three.refuses = {"a", "b", "c"}
    three.generation(2, "a", "b")
    three.later(LOST_S + 10, "a", "b")
    assert three.got == []
    three.refuses = set()
    three.later(TIMING.retry_s + 10, "a", "b")
    assert len(three.got) == 1
    for node in three.nodes.values():
        node.notifier.file.unlink()
    three.ends("a", "b", "c", verdict=RunEnd(done=False, reason="out of memory"))
    three.look("a", "b", "c")
    assert not any(node.waits for node in three.nodes.values()) and len(three.got) == 1


def test_what_was_sent_is_known_to_an_agent_that_starts_again(three):
    for number in (2, 3):
        three.generation(number, "a", "b")
        three.later(LOST_S + 10, "a", "b")
        assert len(three.got) == 1, number
        for name in ("a", "b"):
            three.add(name)


def test_what_another_node_is_sending_is_left_to_it(three):
    a, b = three.nodes["a"], three.nodes["b"]
    three.ends("b")
    b.notifier.look(b.status, {"a": replace(a.status, can_send=False, sending="done")})
    assert three.got == []
    b.notifier.look(replace(b.status, can_send=True), {})
    assert three.got == ["b done: done · 7 steps"]


def test_the_end_waits_no_longer_than_it_may(three, monkeypatch):
    monkeypatch.setattr(NodeNotifier, "_send", lambda *_: None)
    a = three.nodes["a"]
    three.ends("a")
    three.look("a")
    assert a.waits
    three.later(TIMING.notice_end_s, "a")
    assert not a.waits


def test_who_has_just_failed_leaves_the_next_try_to_another(three):
    """As in the agent, whose status is from before it heard of its failure."""
    a = three.nodes["a"]
    three.refuses = {"a"}
    three.ends("a")
    able = {"b": replace(three.nodes["b"].status, can_send=True)}
    for _ in range(3):
        a.notifier.look(replace(a.status, **a.notifier.status), able)
    assert three.tries == ["a"]


def test_what_fails_again_and_again_is_tried_ever_more_rarely(three):
    """A command may have told somebody before it failed. The end of a run waits for no such pause."""
    three.refuses = {"a"}
    for name in ("b", "c"):
        three.nodes[name].notifier.file.unlink()
    three.generation(2, "a", "b")
    three.look("a", "b")
    three.later(LOST_S + 24 * 3600, "a", "b", every_s=30.0)
    assert 5 <= len(three.tries) <= 12
    three.refuses = set()
    three.ends("a")
    three.look("a", "b")
    assert three.got == ["a done: done · 7 steps"]


LATIN = '{"messages": "https://ntfy.sh/gehe\xefm"}'.encode("latin-1")


@pytest.mark.parametrize("content", [LATIN, b"", b"{torn", None])
def test_an_address_that_is_none_or_cannot_be_read_leaves_the_sending_to_another(three, content):
    a = three.nodes["a"].notifier
    a.file.unlink()
    if content is None:
        a.file.mkdir()
    else:
        a.file.write_bytes(content)
    a.send = send
    three.ends("a", "b")
    three.look("a", "b", rounds=6)
    assert three.got == ["b done: done · 7 steps"] and a.sending is None and not a.status["can_send"]


def test_what_is_not_sent_is_named_without_the_address(three, capsys):
    three.refuses = {"a", "b", "c"}
    three.ends("a", "b", "c")
    three.look("a", "b", "c", rounds=6)
    said = capsys.readouterr().err
    assert "a: notify  done not sent: Network is unreachable; the next try in 60 s" in said and "address" not in said
