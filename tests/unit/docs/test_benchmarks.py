"""The tables of docs/BENCHMARKS.md: set between their marks, and every part of `make bench` has a place there."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest

from tests.bench import (
    balance,
    demo,
    engines,
    faults,
    front,
    headlines,
    launch,
    page,
    pipes,
    predict,
    storm,
    tables,
)
from tests.bench.__main__ import PARTS
from train.measure.calibrate import Speed
from train.plan.speed.step_time import LOST_TOGETHER


def test_every_part_has_its_place_and_can_be_replaced(tmp_path: Path) -> None:
    text = page.PAGE.read_text()
    for name in (headlines.NAME, *PARTS):
        assert re.search(rf"<!-- {name}: .*-->", text), name
        copy = tmp_path / "page.md"
        copy.write_text(text)
        page.put(name, ["| new |"], copy)
        page.put(name, ["| newer |"], copy)
        changed = copy.read_text()
        assert "| newer |" in changed and "| new |" not in changed
        assert changed.split(f"<!-- {name}:")[0] == text.split(f"<!-- {name}:")[0]
        assert changed.split(f"end of {name} -->")[1] == text.split(f"end of {name} -->")[1]


def test_a_part_without_a_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text("nothing")
    with pytest.raises(SystemExit, match="no place for other"):
        page.put("other", [], tmp_path / "page.md")


def test_again_forgets_the_part_that_is_measured_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "KEPT", tmp_path)
    for part in ("one", "other"):
        page.keep("look", part, {"s": 1})
    page.forget("look", "one")
    assert page.kept("look") == {"other": [{"s": 1}]} and page.taken("look")


def test_no_figure_of_a_table_is_written_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.PAGE.read_text()
    assert tables.made(text) == text, "make them again: python -m tests.bench.tables"
    kept = tmp_path / "benchmarks"
    shutil.copytree(page.KEPT, kept)
    monkeypatch.setattr(page, "KEPT", kept)
    page.keep("look", "asked", {"plan": 725.0, "doctor": 1.0, "doctor --quick": 1.0, "check-versions": 1.0})
    made = tables.made(text)
    day = time.strftime("%d %B %Y")
    assert f"Taken on {day}.\n\n| asked of three healthy machines | seconds |" in made and "3.6–725.0, 3 runs)" in made
    assert made.split("end of look -->")[1] == text.split("end of look -->")[1]


def test_a_figure_that_is_measured_again_is_kept_beside_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "KEPT", tmp_path)
    for seconds in (1.0, 2.0):
        page.keep("some", "part", {"seconds": seconds})
    assert page.kept("some") == {"part": [{"seconds": 1.0}, {"seconds": 2.0}]}
    assert page.taken("some") == time.strftime("%d %B %Y") and not page.taken("none")


def test_every_headline_leads_to_a_section_of_the_page() -> None:
    sections = re.findall(r"(?m)^#+ (.*)$", page.PAGE.read_text())
    named = {section.replace("`", "").lower() for section in sections}
    assert {section.lower() for _, section, _ in headlines.SECTIONS} <= named
    assert [name for name, _, _ in headlines.SECTIONS if name not in PARTS] == []


def test_the_demo_is_split_where_its_lines_and_its_steps_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "RESULTS", tmp_path)
    trained = [(100.0, 3), (101.0, 3), (111.0, 2), (112.0, 2), (120.0, 3), (121.0, 3)]
    (tmp_path / "gpu-master").mkdir()
    events = [{"event": "step", "time": at, "nodes": {name: {} for name in "abc"[:count]}} for at, count in trained]
    log = tmp_path / "gpu-master" / demo.EVENTS
    log.write_text("".join(json.dumps(event) + "\n" for event in events))
    ends = {"tools": 11.0, "machines": 15.0, "bootstrap": 80.0, "starts": 113.0, "answers": 140.0}
    found = demo.parts(10.0, ends, 145.0)
    assert list(found.values()) == [1, 4, 65, 20, 1, 10, 2, 7, 1, 19, 5]
    part = {"seconds": found, "balanced": 2.0}
    lines = demo.table({"lab": [part], "fast": [part], "folders": [part | {"balanced": None}]})
    assert "| one loses power, until two train | 10 (one run) | 10 (one run) | 10 (one run) |" in lines
    assert "| all in all | 135 (one run) | 135 (one run) | 135 (one run) |" in lines
    assert lines[-1].endswith("| all equally fast |")


def test_a_prediction_is_made_of_the_line_through_one_and_three_micro_batches() -> None:
    alone = {predict.ONE: [[1.0, 2.0], [1.1, 2.0], [0.9, 2.0]], predict.SOME: [[2.0, 6.0], [2.0, 5.0], [2.1, 6.0]]}
    took = predict.Took(alone, {1000: [1.0, 3.0, 1.5]}, ["8:2", "9:1", "9:1"])
    assert took.speeds() == [Speed(pytest.approx(8.0), pytest.approx(0.5)), Speed(pytest.approx(2.0), 0.0)]
    assert took.drift == pytest.approx(1.1 / 0.9 - 1)
    case = predict.Case((50, 25), 10)
    figures = predict.found(case, took, 0)
    assert figures["speeds"] == [[8.0, 0.5], [2.0, 0.0]]
    assert figures["took_s"] == {"1000": 1.5} and figures["split"] == "9:1"
    assert figures["turns"]["alone"] is alone
    dealt = predict.predicted(case, took.speeds(), 0, 1000)
    assert dealt.shares == {"n0": 8, "n1": 2} and dealt.compute_s == pytest.approx(1.4 / (1 - LOST_TOGETHER))


def test_a_figure_is_a_median_with_its_spread() -> None:
    assert page.row("a", [1, 3, 2], "{:.0f} s", "≤ 4 s") == ("a", "2 s (1 s–3 s, 3 runs)", "≤ 4 s")
    assert page.spread([5], "{}") == "5 (one run)"


def test_launches_are_compared_in_turns() -> None:
    def runs(*seconds: float) -> list[dict[str, float]]:
        parts = dict.fromkeys((*launch.PARTS, launch.WORKED, launch.PROCESSES), 1.0)
        return [parts | {launch.BUSY: 80.0, launch.WHOLE: each} for each in seconds]

    found = {"early": runs(10, 6), "late": runs(20, 10), "one early": runs(20, 10), "one late": runs(10, 6)}
    lines = launch.table(found)
    assert "| … early over late, in turns | 55% (50%–60%, 2 runs) |  |  |" in lines
    alone = "| one machine alone: command to the first step | 15.0 (10.0–20.0, 2 runs) | 8.0 (6.0–10.0, 2 runs) |  |"
    assert alone in lines and "183%" in lines[-1]


def test_a_cut_model_is_compared_with_its_plan_and_with_a_streamed_base() -> None:
    cut = {"layers": {"a": 8, "b": 4}, "took": 3.0, "predicted": 3.3}
    streamed = {"streamed took": 4.0, "streamed predicted": 4.4, "chosen": "cut"}
    lines = pipes.table({name: [cut | streamed if name in pipes.STREAMED else cut] for name in pipes.CASES})
    assert "| 8 + 4 | 3.00 (one run) | 3.30 | +10% | 4.00 (one run) | 4.40 | 2048 : 1536 | cut |" in lines[2]
    assert lines[5].endswith("| +10% |  |  |  |  |")


def test_predictions_are_compared_with_what_runs_took() -> None:
    links = {"1000": 1.005, "200": 1.05, "40": 1.5}
    case = {"took_s": links, "speeds": [[12.0, 0.0], [4.0, 0.0]], "split": "11:5", "drift": 0.04, "weights": 250_000}
    said = predict.table({"70/30-16-flat": [case]})
    assert "| 70/30 | 12:4 (11:5) | flat | 1.0 MB | 40 | 1.248 | 1.500 | -16.8% | ±2% |" in said
    assert said[-1].startswith(
        "Within 5%: 2 of 3 (runs by themselves: 2 of 3); half of them within 3.4%; furthest off 17%"
    )
    said = predict.table({"70/30-16-flat": [case | {"speeds": [[12.0, 0.0], [3.0, 0.0]]}]})
    assert "| 1000 | 1.108 | 1.005 |" in said[2], "16 rows at 15 a second, what sharing costs, the exchange"
    other = case | {"took_s": {"1000": 1.005, "200": 1.05, "40": 0.98}}
    said = predict.table({"70/30-16-flat": [case, other]})
    assert "| 1.248 | 1.240 | -16.8%, +27.4% | ±2% |" in said[-3]
    assert "2 of 3 (runs by themselves: 4 of 6)" in said[-1], "two errors do not make up for each other"


def test_rows_that_were_lost_are_said_loudly() -> None:
    always = {"loss": "freeze of a", "known_s": 0.3, "back_s": 2.0, "joined_s": 0.6}
    losses = [always | {"again_s": seconds, "repeated": steps} for seconds, steps in ((5.0, 0), (7.0, 3))]
    storm = {"losses": losses, "steps": 9, "whole": False, "error": 2e-4}
    lines = faults.table({"storm": [storm], "load": [{"minutes": 60, "loops": 7, "steps": 735, "false": 1}]})
    assert "| freeze of a | 6.0 s (5.0 s–7.0 s, 2 losses) | 0.3 s (0.3 s–0.3 s, 2 losses) |" in lines[2]
    assert lines[2].endswith("| 0.6 s (0.6 s–0.6 s, 2 losses) | 3 |")
    assert "ROWS WERE LOST OR TRAINED TWICE" in "".join(lines) and "735 steps, 1 nodes falsely" in lines[-1]


def test_a_storm_s_rows_are_counted_against_the_undisturbed_ones() -> None:
    spent = {storm.CURVE: 80.0, storm.OFF: 5.0, storm.NOTICING: 8.0, storm.AGREEING: 4.0, storm.TWICE: 2.0}
    run = {"faults": {"sleep": 40, "power cut": 25}, "steps": 1440, "repeated": 0, "groups": 126}
    run |= {"spent": spent | {storm.OUTSIDE: 1.0}, "undisturbed": 200, "undisturbed_s": 200.0}
    said = storm.table({"1": [run], "2": [run | {"steps": 1620}]})
    assert "| faults in 30 minutes | 65 | 65 |" in said
    assert "| of undisturbed, aim > 97.7% | **80.0%** | **90.0%** |" in said
    assert "| rows on the curve | 54720 | 61560 |" in said
    assert "| of what the machines that were there could do | 84.2% | 84.2% |" in said
    assert "| lost: noticing | 8.0% | 8.0% |" in said
    assert said[-1] == "| … seconds of all, each time | 2.0 | 2.0 |"
    assert storm.summary({"1": [run], "2": [run | {"steps": 1620}]})[1] == "85.0% (80.0%–90.0%, 2 storms)"


def test_what_pages_say_of_speed_is_made_of_the_measured_figures() -> None:
    found = front.middle()
    for file in front.PAGES:
        text = file.read_text()
        assert tables.with_speed(file, text, found) == text, f"{file.name}: python -m tests.bench.tables"
    assert front.PICTURE.read_text() == front.picture(found)
    assert front.picture(found).count(f"{found.alone[-1]} rows/s") == 2


ADDED = (
    r"train ([\d.]+), ([\d.]+) and ([\d.]+) rows a second\. Together they train ([\d.]+), ([\d.]+) times the fastest "
    r"one.*?(\d+) % of the sum of their speeds \(([\d.]+)\)"
)
EVEN = r"at most 3 × ([\d.]+) = ([\d.]+), .*? Shares by speed are ([\d.]+) times"


def adds_up(text: str) -> bool:
    """What a page says of speed, by its own figures."""
    said = " ".join(text.split())
    ((*alone, together, faster, percent, whole),) = (map(float, found) for found in re.findall(ADDED, said))
    right = [round(sum(alone), 1) == whole, round(100 * together / whole) == percent]
    right += [round(together / max(alone), 2) == faster]
    for slowest, most, over in (map(float, found) for found in re.findall(EVEN, said)):
        right += [slowest == min(alone), round(3 * slowest, 1) == most, round(together / most, 1) == over]
    return all(right)


def test_what_a_page_says_of_speed_adds_up() -> None:
    for file in front.PAGES:
        assert adds_up(file.read_text()), file.name
    said = front.readme(front.Middle(alone=(20.0, 10.0, 5.0), together=31.5, rows=(14, 7, 3)))
    said = " ".join(said.split())
    assert adds_up(said)
    for right, wrong in (
        ("(35.0)", "(35.1)"),
        ("90 %", "91 %"),
        ("1.57", "1.59"),
        ("15.0, calc", "15.1, calc"),
        ("2.1", "2.3"),
    ):
        assert right in said and not adds_up(said.replace(right, wrong)), right


def test_a_ratio_of_a_table_is_that_of_its_own_figures() -> None:
    run = {"auto": 32.948, "even": 13.428, "peer": 12.72}
    lines = balance.table({"text": [run], "pictures": [run]})
    assert lines[2] == "| rows, HF Trainer + DDP: 1 | 32.9 | 13.4 | 2.46× | 12.7 | 2.59× |"


def test_who_never_trained_again_has_repeated_nothing_that_counts() -> None:
    lost = {"again_s": None, "back_s": 2.0, "repeated": 0}
    assert engines.cell([lost]) == "**not in 60 s** (1 of 1); all after its return 2.0 s"
    assert engines.cell([lost, {"again_s": 1.0, "back_s": 2.0, "repeated": 3}]).endswith("; repeated 3")
