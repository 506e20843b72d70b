"""What a report says of a run's machines, settings and time, and of runs that are short, or whose loss is infinite."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from console.report import run_charts, svg_charts
from console.report.machines import card_words, node_table
from console.report.page import about, change, figures
from console.report.read_run import read_history
from console.report.request import command, settings
from console.report.where_time_goes import bars, in_columns, part_advice, part_charts
from tests.support.report_page import html_of, rewrite
from tests.support.run_files import HEAD, WORKER, held_out, start, step, write
from tests.unit.console.report.test_truth import figure, made, processors


def test_cards_are_named_with_their_memory(fetched: Path) -> None:
    rtx = {"name": "NVIDIA GeForce RTX 3090", "memory.total": "24576"}
    (fetched / "nodes" / HEAD / "agent.json").write_text(json.dumps({"node": HEAD, "gpus": [rtx]}))
    known = dict(about(read_history(fetched)))
    assert known["machines"] == f"{HEAD} (RTX 3090, 24 GB), {WORKER} (graphics card)"
    assert card_words([rtx, rtx, {"name": "NVIDIA T4"}]) == "2 × RTX 3090, 24 GB + T4"
    processors(fetched)
    assert dict(about(read_history(fetched)))["machines"] == f"{HEAD} (processor), {WORKER} (processor)"


def test_the_command_repeats_what_was_asked_for() -> None:
    asked = {"model": "qwen3-4b", "max_steps": 40, "packing_odd": True, "run": "qa", "then": None}
    launch = {"given": asked, "all": {"model": "/home/a/models/base/qwen3-4b", "dataset": "my notes.jsonl"}}
    words = "./motley launch --model qwen3-4b --dataset 'my notes.jsonl' --steps 40 --set packing_odd=true"
    assert command(launch) == words
    assert command({}) == "" == command({"all": launch["all"]})


def test_settings_that_shape_the_result_are_there_and_no_rank_without_an_adapter() -> None:
    known = {"learning_rate": 0.0002, "lora_r": 16, "method": "lora", "seed": 7, "epochs": None, "keep": 3}
    assert settings({"all": known}) == [
        ("learning rate", "0.0002"), ("method", "lora"), ("LoRA rank", "16"), ("seed", "7"),
    ]  # fmt: skip
    assert ("LoRA rank", "16") not in settings({"all": known | {"method": "full"}})


# -- time --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percent", "word"),
    [([60, 5, 35], "cable"), ([75, 20, 5], "waited for slower"), ([90, 2, 8], "This is good: 90 %")],
)
def test_where_the_time_went_is_judged(percent: list[int], word: str) -> None:
    table = [{"name": name, "percent": percent, "seconds": 10.0} for name in (HEAD, WORKER)]
    assert word in part_advice(table)
    assert part_advice(table[:1]) == "", "nobody to wait for"


# -- odd losses --------------------------------------------------------------------------------------------------------


def test_a_run_of_one_step_shows_its_point(tmp_path: Path) -> None:
    chart = run_charts.loss_chart(read_history(made(tmp_path, [{HEAD: 8}], {})))
    assert chart["svg"].count("<circle") == 1 and 'data-low="0" data-high="2"' in chart["svg"]


def test_a_loss_that_is_almost_nothing_has_a_chart() -> None:
    axes = svg_charts.Axes(x_name="step", y_name="loss", from_zero=False)
    line = svg_charts.Line(name="training", points=[(1.0, 3e-10), (2.0, 3e-10)], colour="var(--ink)")
    assert "3e-10" in svg_charts.line_chart("loss", [line], axes)
    assert svg_charts.nice_ticks(0, 0.5) == [0, 0.1, 0.2, 0.3, 0.4, 0.5]


def test_the_numbers_behind_a_chart_are_whole() -> None:
    axes = svg_charts.Axes(x_name="step", y_name="tokens/s")
    line = svg_charts.Line(name="a", points=[(12345.0, 23456.7), (12346.0, 3.14159)], colour="var(--n1)")
    behind = svg_charts.table("throughput", axes, [line])
    assert all(f">{number}<" in behind for number in ("12345", "12346", "23457", "3.142"))


@pytest.mark.parametrize("loss", [None, float("inf")])
def test_an_infinite_loss_is_said_in_words(tmp_path: Path, loss: float | None) -> None:
    folder = made(tmp_path, [{HEAD: 8}] * 6, {}, evals=[held_out(120, 6, 1.0)])
    rewrite(folder, lambda event: event.update(loss=loss) if event["step"] == 6 else None)
    history = read_history(folder)
    assert figure(history, "held-out loss")[0] == "infinite"
    assert "From step 6 on, the loss of some steps is infinite" in run_charts.loss_chart(history)["text"]
    assert change(2.0, None) == "2.000 → infinite"


def test_no_colour_of_a_chart_of_losses_or_times_is_a_machine_s(fetched: Path) -> None:
    history = read_history(fetched)
    for chart in (run_charts.loss_chart(history), *part_charts(history)):
        assert "var(--n" not in chart["svg"], chart["key"]


def test_of_a_long_run_a_column_is_the_mean_of_some_steps_and_the_last_as_wide_as_its_own() -> None:
    columns = in_columns([(step, [float(step), 0.0, 1.0]) for step in range(1, 10)], 4)
    assert columns == [(1, 4, [2.5, 0.0, 1.0]), (5, 8, [6.5, 0.0, 1.0]), (9, 9, [9.0, 0.0, 1.0])]
    rects = re.findall(r'<rect x="([\d.]+)" y="[\d.]+" width="([\d.]+)"', bars("a", columns, 10.0))[::3]
    edges = [(float(x), float(x) + float(width)) for x, width in rects]
    assert all(before[1] < after[0] for before, after in pairwise(edges))
    assert float(rects[0][1]) == pytest.approx(4 * float(rects[-1][1]), rel=0.01)


# -- machines that hold a model together -------------------------------------------------------------------------------


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
