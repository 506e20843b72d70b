"""A run that the code of an earlier commit began, as its nodes kept it (tests/kept): this code reads it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from console import fetch
from console.inventory.read import Inventory
from console.report.page import write_page
from console.report.run_data import read_history
from console.report.what_happened import numbered
from console.watch import status
from console.watch.run_in_words import RunView
from tests.support.folders import inventory_of
from train.runlog import paths
from train.runlog.state import RunState, time_of
from train.runlog.tail import read

KEPT = Path(__file__).parents[1] / "kept/run-67676e9"
NODES = ["node-0", "node-1", "node-2"]


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    for name in NODES:
        shutil.copytree(KEPT / name, tmp_path / name)
    return inventory_of(tmp_path, {name: tmp_path / name for name in NODES})


def test_it_is_followed() -> None:
    logs = paths.logs(KEPT / "node-0", "run")
    events = sorted([*read(logs / paths.EVENTS), *read(logs / paths.MEMBERS)], key=time_of)
    view = RunView(RunState(run="run"), NODES)
    shown = [line for event in events for line in view.take("node-0", "event", event)]
    assert shown == [  # the lines of that commit's own ./motley follow
        "⚡ node-2 lost at step 4 · silent",
        "✓ training again with 2 of 3 at step 4 after 9 s · no steps repeated",
        "✓ node-2 back · 3 of 3 at step 5 after 65 s · no steps repeated",
        "held-out loss 6.9340 after step 6 (best so far)",
    ]
    assert view.state.step == 12 and view.state.total == 40 and len(view.state.proven) == 3
    view.take("node-0", "now", {"on": False, "now": json.loads((logs / paths.AGENT).read_text())})
    assert view.ended is None, "it was stopped"


def test_its_status_is_shown(inventory: Inventory, capsys: pytest.CaptureFixture[str]) -> None:
    assert status.status(inventory) == 0
    line = "no run is running; the last was run: stopped at step 12 · resume it: ./motley launch --resume run"
    assert capsys.readouterr().out.splitlines()[0] == line


def test_it_is_fetched_and_reported(inventory: Inventory, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = tmp_path / "results"
    assert fetch.fetch(inventory, "run", results) == 0, capsys.readouterr().out
    history = read_history(results / "run")
    assert history.nodes == NODES and [step["step"] for step in history.steps] == list(range(1, 13))
    marked = [word["what"].split(" (")[0] for word in numbered(history) if word["label"]]
    assert marked == ["node-2 lost", "node-2 back"], "that it waited while it was cut off is the same loss"
    assert history.ending and history.ending["event"] == "stopped"
    assert "12 of 40 steps on 3 machines" in write_page(history, tmp_path / "report.html").read_text()
