"""How often the live page is drawn, and what it counts along instead of reading everything again."""

from __future__ import annotations

import time
from typing import Any

import pytest

from console.dashboard.feed import Feed, FeedView
from console.dashboard.pages import CALM_S, HEAD_S, SELDOM, Pages
from console.follow import Follower
from console.infra.local import LocalNode
from console.infra.node import Facts, Node
from console.report.series import kwh
from tests.support.run_files import held_out, member, start, step
from train.runlog.state import RunState

NODES = ["gpu-master", "gpu-worker-1"]
ROWS = {"gpu-master": 14, "gpu-worker-1": 7}


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.at)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def pages(clock: Clock) -> Pages:
    feed = Feed([], {})
    feed.take(start(1000.0, 0, NODES, 500) | {"run": "qa"}, urgent=False)
    for number in range(1, 31):
        feed.take(step(1000.0 + number, number, ROWS, 2.0), urgent=False)
    feed.urgent += 1
    made = Pages(feed, "")
    assert made.due()
    made.refresh()
    return made


def test_steps_are_drawn_once_a_second_and_a_loss_at_once(pages: Pages, clock: Clock) -> None:
    pages.feed.take(step(1031.0, 31, ROWS, 2.0))
    assert not pages.due(), "each step is drawn"
    clock.at += 1.01 * HEAD_S
    assert pages.due()
    pages.refresh()
    assert '<span id="step">31</span>' in pages.parts["live"][1] and not pages.due()
    pages.feed.take(member("lost", 1032.0, "gpu-master", ["gpu-worker-1"], "lost gpu-worker-1 (silent)") | {"step": 31})
    assert pages.due()
    pages.refresh()
    assert "gpu-worker-1 lost (silent)" in pages.parts["news"][1] and not pages.due()


def test_charts_are_drawn_so_seldom_that_they_cost_little(pages: Pages, clock: Clock) -> None:
    pages.cost_s = 2 * CALM_S / SELDOM
    drawn = pages.parts["loss"]
    for event in (step(1031.0, 31, ROWS, 1.0), held_out(1031.0, 31, 1.5)):
        pages.feed.take(event)
    clock.at += 1.9 * CALM_S
    pages.refresh()
    assert pages.parts["loss"] == drawn and "1.500 (step 31)" in pages.parts["live"][1]
    clock.at += 0.2 * CALM_S
    pages.refresh()
    assert pages.parts["loss"][0] > drawn[0]


def test_what_the_cards_took_is_counted_along() -> None:
    feed = Feed([], {"gpu-master": {"motley_kwh_price": 0.3}})
    for second, watts in ((0, 100), (3, 900), (10, 200), (40, 200), (200, 300), (230, 300)):
        gpus = [{"power.draw": str(watts), "temperature.gpu": "60", "memory.used": "1000"}]
        for node in NODES:
            feed.read_gpus(node, gpus, 1000.0 + second)
    own = [one for one in feed.readings if one["node"] == "gpu-master"]
    assert [one["time"] for one in own] == [1000.0, 1010.0, 1040.0, 1200.0, 1230.0], "every four seconds at most"
    assert feed.kwh["gpu-master"] == pytest.approx(kwh(own)) and feed.kwh["gpu-master"] > 0
    assert feed.newest["gpu-worker-1"]["watts"] == 300


def test_who_is_read_anyway_is_not_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes: list[Node] = [LocalNode(name=name, home="/nowhere") for name in NODES]
    feed = Feed(nodes, {})
    looked: list[list[str]] = []

    def ask_all(asked: list[Node], _: Any) -> tuple[dict[str, Facts], dict[str, str]]:
        looked.append([node.name for node in asked])
        if len(looked) == 2:
            return {}, {"gpu-worker-1": "nobody answers"}
        return {node.name: {"now": {}, "gpus": [], "time": 0.0, "number": len(looked)} for node in asked}, {}

    monkeypatch.setattr("console.dashboard.feed.ask_all", ask_all)
    feed.look()
    feed.follower = Follower(nodes, FeedView(RunState(run="qa"), NODES), print, lambda: None)
    feed.look()
    assert looked == [NODES, ["gpu-worker-1"]]
    assert [*feed.looks] == ["gpu-master"] and feed.silent == {"gpu-worker-1": "nobody answers"}
    feed.look()
    assert feed.looks["gpu-worker-1"]["number"] == 3 and feed.silent == {}
