"""From which node a run is read, when another is asked, and when it has ended. Nodes answer as the test says."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Mapping
from typing import Any

import pytest

from console.infra.machines.node import LocalNode
from console.infra.node import Silent
from console.watch import follow
from console.watch.run_in_words import NEXT, Ended, RunView
from train.runlog.state import RunState

OFF = {"on": False, "run": "r", "words": "torch is missing\nno module named torch"}
ON = {"on": True, "run": "r"}
STEP = {"event": "step", "time": 9.0, "step": 7, "loss": 3.0, "tokens": 9, "step_s": 1.0, "nodes": {"a": {"rows": 4}}}


class Cluster:
    """Three nodes. What `look` answers (who is missing is silent), and what each tells when it is read from."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looks: Mapping[str, Any] = {}
        self.tells: dict[str, list[str]] = {}
        self.read: list[str] = []
        self.said: list[str] = []
        monkeypatch.setattr(LocalNode, "events", lambda node, _: self.events(node.name))
        monkeypatch.setattr(LocalNode, "status", lambda node: self.status(node.name))
        nodes = [LocalNode(name=name, home="") for name in "abc"]
        self.view = RunView(RunState(run="r", members=["a", "b", "c"]), ["a", "b", "c"])
        self.follower = follow.Follower(nodes, self.view, self.said.append, lambda: None)

    def status(self, name: str) -> Any:
        if name not in self.looks:
            raise Silent("off")
        return self.looks[name]

    def events(self, name: str) -> subprocess.Popen[bytes]:
        self.read.append(name)
        if name not in self.tells:
            raise Silent("off")
        words = ["sh", "-c", 'printf "%s\\n" "$@"; exec sleep 60', "sh", *self.tells[name]]
        return subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(monkeypatch)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    at = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    return at


def told(kind: str, **facts: Any) -> str:
    return f"{kind} {json.dumps(facts)}"


def test_a_node_that_freezes_is_left_for_the_next(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "SILENT_S", 0.2)
    ended = {"event": "ended", "time": 10.0, "epoch": 1, "nodes": [], "done": True, "reason": "all steps"}
    cluster.tells = {"a": [told("event", **STEP)], "b": [told("member", **ended)]}
    found = cluster.follower.follow(limit_s=5)
    assert found and found.ok and found.shown == (f"done · 7 steps · loss 3.0000   {NEXT}",)
    assert cluster.read == ["a", "b"]


def test_after_a_round_without_an_answer_it_goes_to_who_trains(cluster: Cluster) -> None:
    cluster.looks = {"a": OFF, "b": OFF, "c": ON}
    with pytest.raises(TimeoutError):
        cluster.follower.follow(limit_s=1.7)
    assert cluster.read[:4] == ["a", "b", "c", "c"]


NOBODY = {"a": OFF, "b": OFF, "c": OFF}
FAILED = {"event": "failed", "time": 10.0, "step": 8, "node": "b", "message": "the loss is nan"}
STOPPED = Ended(True, ("stopped at step 7 · resume it: ./motley launch --resume r",))
UNBEGUN = Ended(False, ("run r ended before its first step: no module named torch", "see: ./motley logs"))


def notices(cluster: Cluster, clock: list[float], facts: dict[str, Any] = OFF, seconds: float = 4) -> None:
    """The node that is read from tells so, for so long."""
    for _ in range(2):
        cluster.follower._notice_end(facts)
        clock[0] += seconds


@pytest.mark.parametrize(
    ("looks", "told", "ended"),
    [
        (NOBODY, [STEP], STOPPED),
        (NOBODY, [], UNBEGUN),
        (NOBODY, [STEP, FAILED], Ended(False, ("run r failed on b in step 8: the loss is nan",))),
        ({"a": OFF}, [], None),
        ({"a": OFF, "b": OFF}, [], UNBEGUN),
    ],
    ids=["stopped", "it never began", "it had failed", "most nodes do not tell", "one of three does not tell"],
)
def test_a_run_has_ended_where_nobody_has_it_any_more_for_a_while(
    cluster: Cluster, clock: list[float], looks: Any, told: list[dict[str, Any]], ended: Ended | None
) -> None:
    cluster.looks = looks
    for event in told:
        cluster.view.take("a", "event", event)
    notices(cluster, clock, seconds=1)
    assert cluster.view.ended is None, "its processes may be about to begin again"
    notices(cluster, clock, OFF | {"wanted": True})
    assert cluster.view.ended is None, "the node still wants it"
    notices(cluster, clock)
    assert cluster.view.ended == ended


def test_while_another_node_trains_it_is_read_from_that_one(cluster: Cluster, clock: list[float]) -> None:
    cluster.looks = {"a": OFF, "b": OFF | {"on": True, "run": "other"}, "c": ON}
    notices(cluster, clock)
    assert cluster.view.ended is None and cluster.follower.node.name == "c"


def test_a_step_that_is_read_again_counts_once() -> None:
    view = RunView(RunState(run="r", total=40), ["a"])
    view.take("a", "event", STEP)
    view.take("a", "event", STEP | {"step": 8, "time": 14.0, "step_s": 5.0})
    left_s = view.state.left_s
    assert view.take("b", "event", STEP | {"step": 8, "time": 14.0, "step_s": 5.0}) == []
    assert view.state.left_s == left_s > 0
