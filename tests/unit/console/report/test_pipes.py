"""The report of machines that hold a model together: each is drawn with its part of the computing."""

from __future__ import annotations

from pathlib import Path

from console.report import run_charts
from console.report.machines import node_table
from console.report.page import figures
from console.report.read_run import read_history
from tests.support.report_page import html_of
from tests.support.run_files import HEAD, WORKER, start, step, write


def test_the_second_machine_of_a_pipe_has_its_part_of_the_work_and_its_layers(tmp_path: Path) -> None:
    one = step(102.0, 1, {HEAD: 8, WORKER: 0})
    one["nodes"][HEAD] |= {"layers": [0, 1], "compute_s": 1.0}
    one["nodes"][WORKER] |= {"layers": [1, 4], "compute_s": 2.0}
    write(tmp_path / "qa/nodes" / HEAD, "events.jsonl", [start(100.0, 0, [HEAD, WORKER], 1), one])
    history = read_history(tmp_path / "qa")
    assert [line.points[-1][1] for line in run_charts.rows_by_step(history)] == [2, 6]
    assert [line.points[-1][1] for line in run_charts.tokens_by_minute(history)] == [100, 300]
    found = node_table(history)
    assert [(node["part"], node["speed"], node["layers"]) for node in found] == [
        (25, 2, "layer 1"), (75, 3, f"layers 2-4 of {HEAD}'s rows"),
    ]  # fmt: skip
    assert {name: value for name, value, _ in figures(history)}["speed"] == "4.0 rows/s"
    text = html_of(tmp_path / "qa")
    assert "layers 2-4 of " in text and "with its part of the computing" in text
