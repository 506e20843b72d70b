"""How often the live page is drawn, and what it counts along instead of reading everything again."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from console.dashboard import tables
from console.dashboard.feed import Feed, FeedView
from console.dashboard.pages import CALM_S, HEAD_S, OLD_S, SELDOM, Pages, electricity, facts_of, live, machine, roughly
from console.dashboard.server import Dashboard
from console.infra.machines.node import LocalNode
from console.infra.node import Node
from console.inventory.read import Inventory
from console.report.run_charts import kwh
from console.watch.follow import Follower
from plugins.module_utils.motley.node_replies import Look
from tests.support.run_files import held_out, member, start, step
from train.runlog.state import Event, RunState

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
    pages.feed.take(member("lost", 1032.0, "gpu-master", ["gpu-worker-1"], "silent") | {"step": 31})
    assert pages.due()
    pages.refresh()
    assert "gpu-worker-1 lost (silent)" in pages.parts["news"][1] and not pages.due()


def test_when_it_is_ready_follows_from_what_its_steps_took_and_is_not_said_while_it_waits(pages: Pages) -> None:
    assert "(16 min)" in pages.parts["live"][1], "470 steps of 2 s"
    pages.feed.state.state = "waiting"
    assert live(pages.feed)["ends"] == ""


@pytest.mark.parametrize(
    ("rows", "number", "words"),
    [
        (100, 1, "step <b>1</b> of 25, epoch 1 of 2"),
        (100, 12, "step <b>12</b> of 25, epoch 1 of 2"),
        (100, 13, "step <b>13</b> of 25, epoch 2 of 2"),
        (80, 25, "step <b>25</b> of 25, epoch 3 of 2.5"),
        (0, 25, "step <b>25</b> of 25 "),
    ],
)
def test_the_epoch_stands_beside_the_step_where_the_rows_are_known(
    clock: Clock, rows: int, number: int, words: str
) -> None:
    feed = Feed([], {})
    counted = {"rows": rows} if rows else {}  # an older Motley's log has none
    feed.take(start(1000.0, 0, NODES, 25) | counted, urgent=False)
    feed.take(step(1001.0, number, ROWS, 2.0), urgent=False)
    made = Pages(feed, "")
    made.refresh()
    assert words in made.parts["live"][1].replace('<span id="step">', "<b>").replace("</span>", "</b>", 1), words


def test_of_a_run_in_pieces_who_has_not_ended_one_takes_part_and_nothing_is_called_a_step(clock: Clock) -> None:
    feed = Feed([LocalNode(name=name, home="/nowhere") for name in NODES], {})
    feed.take(start(1000.0, 0, NODES, 8) | {"rows": 8, "rows_per_step": 1}, urgent=False)
    done = {"step": 2, "piece": 1, "node": "gpu-master", "step_s": 9.0, "words": "16 answers"}
    feed.take({"event": "piece", "time": 1020.0, **done, "nodes": {"gpu-master": {"rows": 2}}}, urgent=False)
    facts = live(feed)
    assert facts["good"] and facts["word"] == "working" and facts["epoch"] == ""
    made = Pages(feed, "")
    made.refresh()
    page = made.parts["live"][1]
    assert "doctor" not in page and "100 % of what is done" in page and "2 of 2 pieces" in page
    assert 'piece <span id="step">2</span> of 8' in page and "of each step" not in page


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

    def ask_all(asked: list[Node], _: Any) -> tuple[dict[str, Look], dict[str, str]]:
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


def test_an_old_figure_has_its_age_and_one_of_now_has_none() -> None:
    feed = Feed([], {})
    feed.newest["a"] = {"time": time.time(), "celsius": 64.0, "watts": 204.0, "used_mb": None}
    assert facts_of(feed, "a", away=False) == "64 °C · 204 W"
    feed.newest["a"]["time"] -= max(180.0, OLD_S + 1)
    assert facts_of(feed, "a", away=False) == "3 min ago: 64 °C · 204 W"
    assert facts_of(feed, "a", away=True).startswith("3 min ago: ")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(20, "less than a minute"), (1407, "23 min"), (7900, "2 h 10 min"), (3601, "1 h"), (97_000, "27 h")],
)
def test_a_forecast_is_no_more_exact_than_it_is(seconds: float, words: str) -> None:
    assert roughly(seconds) == words


def test_the_price_has_its_currency() -> None:
    feed = Feed([], {"a": {"motley_kwh_price": 0.3, "motley_currency": "€"}})
    feed.kwh["a"] = 2.0
    assert electricity(feed) == "2 kWh, €0.60 at €0.30 a kWh, by the graphics cards since you started this page"


@pytest.mark.parametrize(
    ("events", "verb"),
    [
        ([], "launch --model … --dataset …"),
        ([start(1.0, 0, NODES) | {"run": "qa"}, {"event": "done", "time": 9.0, "step": 12, "loss": 1.0, "seconds": 9}],
         "fetch --run qa"),
    ],
)  # fmt: skip
def test_a_state_has_its_next_step(events: list[Event], verb: str) -> None:
    feed = Feed([], {}, run="qa" if events else "")
    for event in events:
        feed.take(event)
    assert live(feed)["next"]["verb"] == verb


def test_machines_and_runs_are_rows_with_the_next_command() -> None:
    gpus = [{"name": "NVIDIA GeForce RTX 3090", "memory.total": "24576", "temperature.gpu": "40", "power.draw": "21"}]
    idle = {"on": False, "now": {}, "gpus": gpus, "paused": "until 18:00", "checkpoint": 0, "free_bytes": 71e9}
    one, two = tables.machines(NODES, {NODES[0]: idle}, {NODES[1]: "nobody answers"})
    assert (one["card"], one["does"], one["next"]) == ("RTX 3090, 24 GB", "paused until 18:00", "unpause gpu-master")
    assert (one["heat"], one["free"]) == ("40 °C · 21 W", "71 GB")
    assert two["bad"] and (two["does"], two["next"]) == ("nobody answers", "wake gpu-worker-1")
    pages = Pages(Feed([], {}), " --inventory mine")
    text = pages.page("tables.html.j2", what="machines", rows=[one, two], silent={})
    assert text.count("<tr") == 3 and "./motley wake gpu-worker-1 --inventory mine" in text
    nobody = pages.page("tables.html.j2", what="runs", rows=[], silent={"a": "off"})
    assert "./motley doctor --inventory mine" in nobody and "no runs yet" not in nobody
    assert "./motley launch" in pages.page("tables.html.j2", what="runs", rows=[], silent={})
    facts = {"step": 7, "steps": 12, "loss": None, "time": 1.0, "model": "m", "done": False, "bytes": 2e6}
    (run,) = tables.runs({NODES[0]: {"runs": {"qa": facts}, "on": ""}})
    assert (run["steps"], run["state"], run["next"]) == ("7 of 12", "stopped", "launch --resume qa")
    (rewarded,) = tables.runs({NODES[0]: {"runs": {"qa": facts | {"loss": -0.01, "reward": 0.5}}, "on": ""}})
    assert (run["loss"], rewarded["loss"]) == ("–", "reward 0.500")


@pytest.mark.parametrize(("running", "status", "asked"), [(True, 200, ["stop"]), (False, 409, [])])
def test_a_form_that_is_sent_when_its_run_has_ended_stops_no_other(
    pages: Pages, monkeypatch: pytest.MonkeyPatch, *, running: bool, status: int, asked: list[str]
) -> None:
    """The next of the queue may be running by then."""
    found: list[str] = []

    async def verb(_: Dashboard, words: list[str]) -> str:
        found.append(words[0])
        return "nothing left"

    async def sent() -> dict[str, Any]:
        return {"type": "http.request", "body": b"run=qa", "more_body": False}

    monkeypatch.setattr(Dashboard, "verb", verb)
    monkeypatch.setattr(Feed, "running", running)
    pages.feed.run = "qa"
    board = Dashboard(pages.feed, pages, Inventory(path=Path("x"), nodes={}))
    answer = asyncio.run(board.stop(Request({"type": "http", "method": "POST", "headers": []}, sent)))
    assert (answer.status_code, found) == (status, asked)


def test_the_second_machine_of_a_pipe_shows_its_layers_and_its_part_of_the_work() -> None:
    feed = Feed([], {})
    event = step(100.0, 1, {"a": 6, "b": 0, "c": 2}, 2.0)
    event["nodes"]["a"] |= {"layers": [0, 6], "compute_s": 2.0}
    event["nodes"]["b"] |= {"layers": [6, 24], "compute_s": 3.0}
    for one in (start(99.0, 0, ["a", "b", "c"], 10), event):
        feed.take(one)
    shown = {name: machine(feed, name, place) for place, name in enumerate("abc")}
    assert {name: one["rows"] for name, one in shown.items()} == {
        "a": "6 of 8 rows, layers 1-6 of 24",
        "b": "layers 7-24 of 24 of a's rows",
        "c": "2 of 8 rows",
    }
    assert [one["share"] for one in shown.values()] == [19, 56, 25], "of all rows through all layers"
    assert [shown[name]["speed"] for name in "ab"] == ["3.0 rows/s", "2.0 rows/s"]
