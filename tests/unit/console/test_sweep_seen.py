"""A sweep as a person sees it: followed, on the live page, and in the report of the fetched run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from console.dashboard.feed import Feed
from console.dashboard.pages import Pages
from console.report.page import view, write_page
from console.report.read_run import read_history
from console.watch.run_in_words import RunView
from tests.support.run_files import Event, start, write
from train.runlog.state import RunState, replay
from train.runlog.trials import from_events

NODES = ["desk", "lap"]


def note(time: float, piece: int, node: str, **fact: Any) -> Event:
    return {"event": "note", "time": time, "piece": piece, "node": node, "fact": fact}


def loss(time: float, piece: int, node: str, step: int, loss: float) -> Event:
    return note(time, piece, node, step=step, loss=loss, total=80)


def done(time: float, count: int, piece: int, node: str, words: str) -> Event:
    facts = {"step": count, "piece": piece, "node": node, "step_s": 30.0, "words": words}
    return {"event": "piece", "time": time, **facts, "nodes": {node: {"rows": count}}}


LOG = [
    start(100.0, 0, NODES, 4) | {"run": "night", "decisions": {}},
    note(101.0, 1, "desk", params={"learning_rate": 1e-4, "lora_r": 8}),
    note(102.0, 2, "lap", params={"learning_rate": 1e-2, "lora_r": 16}),
    loss(110.0, 1, "desk", 40, 2.5),
    loss(111.0, 2, "lap", 20, 3.5),
    loss(130.0, 1, "desk", 80, 2.0),
    note(131.0, 1, "desk", state="done", reason=""),
    done(131.0, 1, 1, "desk", "trial 1 held-out loss 2.0000 · learning_rate 0.0001  lora_r 8"),
    note(132.0, 2, "lap", state="pruned", reason=""),
    done(132.0, 2, 2, "lap", "trial 2 ended early"),
    note(133.0, 3, "desk", params={"learning_rate": 2e-4, "lora_r": 8}),
    loss(140.0, 3, "desk", 10, 2.4),
    note(141.0, 4, "lap", params={"learning_rate": 3e-4, "lora_r": 8}),
    note(142.0, 4, "lap", state="failed", reason="out of memory"),
    done(142.0, 3, 4, "lap", "trial 4 failed: out of memory"),
]


def test_the_trials_follow_from_what_is_told_of_the_pieces() -> None:
    trials = from_events(LOG[1:])
    assert [(one.number, one.node, one.state, one.loss) for one in trials] == [
        (1, "desk", "done", 2.0), (2, "lap", "pruned", 3.5), (3, "desk", "running", 2.4), (4, "lap", "failed", None),
    ]  # fmt: skip
    assert (trials[0].steps, trials[0].total, trials[0].seconds) == (80, 80, 30.0)
    assert trials[3].reason == "out of memory"


def test_a_trial_that_was_lost_begins_again_with_what_is_tried_then() -> None:
    other = note(115.0, 2, "desk", params={"learning_rate": 5e-3, "lora_r": 8})
    again = [*LOG[1:5], other, loss(116.0, 2, "desk", 10, 3)]
    [_, second] = from_events(again)
    assert (second.node, second.params["learning_rate"], second.losses) == ("desk", 5e-3, ((10, 3.0),))
    same = [*LOG[1:5], note(115.0, 2, "desk", params={"learning_rate": 1e-2, "lora_r": 16})]
    assert from_events(same)[1].losses == ((20, 3.5),), "it continues"
    assert from_events([done(1.0, 1, 1, "a", "16 answers"), note(2.0, 2, "a", progress=3)]) == [], "other pieces"


def test_all_nodes_write_it_and_each_thing_counts_once() -> None:
    late = [event | {"time": event["time"] + 0.7} for event in LOG]
    state, _ = replay([*LOG, *late])
    assert state.trials == from_events(LOG[1:]) and len(state.noted) == len(LOG) - 1
    assert (state.step, state.total, state.state) == (3, 4, "working")


def followed(count: int) -> tuple[RunView, list[str]]:
    shown = RunView(RunState(run="night"), NODES, {})
    return shown, [line for event in LOG[:count] for line in shown.take("desk", "event", event)]


def test_who_follows_sees_what_runs_with_its_newest_loss_and_the_best_so_far() -> None:
    first, lines = followed(5)
    assert first.line() == "desk 2.5000 · lap 3.5000" and lines == []
    shown, lines = followed(len(LOG))
    assert lines == [
        "desk: trial 1 held-out loss 2.0000 · learning_rate 0.0001  lora_r 8",
        "lap: trial 2 ended early",
        "lap: trial 4 failed: out of memory",
    ]
    line = shown.line()
    assert line.startswith("trial 3/4  best 2.0000 (learning_rate 0.0001  lora_r 8) · desk 2.4000  eta 0:00:")


def test_the_live_page_has_the_table_and_the_picture() -> None:
    feed = Feed([], {})
    for event in LOG:
        feed.take(event, urgent=False)
    pages = Pages(feed, "")
    pages.refresh()
    block = pages.parts["trials"][1]
    assert "3 of 4 trials · best 2.0000" in block and "out of memory" in block and "<svg" in block
    assert block.count("<tr>") == 5 and "is running" in block
    assert 'trial <span id="step">3</span> of 4' in pages.parts["live"][1]


def test_the_report_is_about_the_trials(tmp_path: Path) -> None:
    end = {"event": "done", "time": 150.0, "step": 3, "loss": None, "seconds": 50.0}
    write(tmp_path / "nodes/desk", "events.jsonl", [*LOG, end])
    (tmp_path / "sweep").mkdir()
    (tmp_path / "launch.json").write_text(json.dumps({"all": {"recipe": "sweep", "lora_r": 8}, "given": {}}))
    history = read_history(tmp_path)
    shown = view(history)
    assert shown["headline"] == "3 of 4 trials on 2 machines in 50 s" and shown["outcome"] == "done"
    assert shown["figures"] == [
        ("best held-out loss", "2.0000", "learning_rate 0.0001  lora_r 8"),
        ("trained to their end", "1 trial", "1 ended early, 1 failed, 1 running"),
    ]
    assert [row["trial"] for row in shown["trials"]["rows"]] == ["1", "3", "2", "4"]
    page = write_page(history, tmp_path / "report.html").read_text()
    assert "./motley launch -f results/night/sweep/best.yml" in page
    assert "./motley sweep --resume night --trials 8" in page
    assert "./motley ask" not in page and "All trials" in page


def test_a_run_without_trials_has_no_such_table() -> None:
    feed = Feed([], {})
    feed.take(LOG[0], urgent=False)
    pages = Pages(feed, "")
    pages.refresh()
    assert pages.parts.get("trials", (0, ""))[1] == ""
