"""The report of a run, from the files its nodes wrote: what is told, and what a browser makes of it."""

from __future__ import annotations

import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.__main__ import act
from console.command_line import commands_as_typed
from console.command_line.verbs import parser
from console.report import svg_charts
from console.report.command import report
from console.report.read_run import NothingHappened, read_history
from console.report.run_charts import kwh
from tests.support import pace
from tests.support.browser import Browser
from tests.support.report_page import Page, html_of, rewrite, words_of
from tests.support.run_files import HEAD, WORKER, Event, held_out, member, write
from train.errors import BadInput

PARTS = {f"parts of {HEAD}", f"parts of {WORKER}"}
CHARTS = {"loss", "throughput", "shares", "waiting", "temperature", "power", *PARTS}


def test_every_step_is_told_once_by_its_newest_account(fetched: Path) -> None:
    history = read_history(fetched)
    assert [event["step"] for event in history.steps] == list(range(1, 13))
    assert history.repeated == 2
    assert list(history.steps[3]["nodes"]) == [HEAD, WORKER]
    assert list(history.steps[5]["nodes"]) == [HEAD]
    assert len(history.starts) == 2
    assert history.ending is not None and history.ending["event"] == "done"


@pytest.mark.parametrize("loss", ["Infinity", "-Infinity", "NaN"])
def test_a_loss_that_is_no_number_is_a_gap(fetched: Path, loss: str) -> None:
    """As fp16 and a recipe of one's own can write one."""
    rewrite(fetched, lambda event: event.update(loss=float(loss)) if event.get("loss") in (0.5, 4.0) else None)
    page = html_of(fetched)
    assert loss not in "".join(re.findall(r'<script type="application/json">(.*?)</script>', page))


def test_waiting_for_each_other_before_the_start_is_no_news(fetched: Path) -> None:
    early = member("waiting", 40.0, WORKER, [HEAD], "looking for the others", epoch=0, step=0)
    write(fetched / "nodes" / WORKER, "members.jsonl", [early])
    words = words_of(fetched)
    assert f"1 13 s 6 {WORKER} lost" in words and "looking for" not in words, words


def test_what_was_foretold_stands_beside_what_came(fetched: Path) -> None:
    words = words_of(fetched)
    assert "seconds a step 1.50 2.00" in words and f"rows a step of {WORKER} 3 0.3" in words, words


def test_what_of_the_data_was_left_out_is_said(fetched: Path) -> None:
    reason = "data: 1 of 41 records are skipped, the first: notes.jsonl line 41: <the answer> is empty"
    rewrite(fetched, lambda event: event.update(reasons=["as set", reason]) if event["event"] == "start" else None)
    assert reason in words_of(fetched) and "<the answer>" not in html_of(fetched)


def test_a_run_without_an_end_is_said_to_have_none(fetched: Path) -> None:
    rewrite(fetched, keep=lambda event: event["event"] != "done")
    assert "no end was recorded" in words_of(fetched)


def test_a_folder_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NothingHappened, match=r"./motley fetch"):
        read_history(tmp_path)


def test_the_command_takes_the_newest_run(
    fetched: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(commands_as_typed.VARIABLE, "")
    asked = parser("report").parse_args(["--results", str(fetched.parent)])
    assert act("report", asked) == 0
    assert capsys.readouterr().out.split() == ["report", str(fetched / "report.html")]
    shutil.rmtree(fetched)
    with pytest.raises(BadInput, match=r"no run has been fetched\n  into .*\n  fix: ./motley fetch"):
        act("report", parser("report").parse_args(["--results", str(fetched.parent)]))


def test_commands_repeat_the_inventory_that_was_typed_at_the_fetch(
    fetched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(commands_as_typed.VARIABLE, "")
    launch = {"run": "qa", "given": {"model": "tiny"}, "all": {}}
    (fetched / "nodes" / HEAD / "launch.json").write_text(json.dumps(launch))
    assert report(run="qa", results=fetched.parent) == 0
    assert "--inventory" not in Page((fetched / "report.html").read_text()).words
    (fetched / "receipt.json").write_text(json.dumps({"typed": {"inventory": "my <own>"}}))
    assert report(run="qa", results=fetched.parent) == 0
    words, where = Page((fetched / "report.html").read_text()).words, "--inventory 'my <own>'"
    for command in ("ask WHERE --run qa", "export WHERE --run qa --to gguf", "launch WHERE --model tiny"):
        assert f"./motley {command.replace('WHERE', where)}" in words, words


def test_energy_is_power_over_time_and_silence_is_not_counted() -> None:
    readings = [{"time": t, "watts": 360.0} for t in (0, 10, 20, 1000, 1010)]
    assert kwh(readings) == pytest.approx(360 * 30 / 3.6e6)


def test_the_page_needs_nothing_else(fetched: Path) -> None:
    text = html_of(fetched)
    assert not re.search(r"src=|href=(?!\"data:)|@import|url\(|https?://", text)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_ticks_cover_what_is_shown(low: float, span: float) -> None:
    ticks = svg_charts.nice_ticks(low, low + span)
    slack = 1e-6 * max(1.0, abs(low), span)
    assert ticks[0] <= low + slack and ticks[-1] >= low + span - slack
    assert 2 <= len(ticks) <= 8
    assert all(a < b for a, b in pairwise(ticks))


@given(st.lists(st.floats(0, 100), min_size=1, max_size=2000))
def test_thinning_and_smoothing_stay_within_the_data(values: list[float]) -> None:
    points = [(float(i), y) for i, y in enumerate(values)]
    thin = svg_charts.thinned(points)
    assert len(thin) <= svg_charts.MOST_POINTS
    for some in (thin, svg_charts.smoothed(points)):
        assert min(values) - 1e-9 <= min(y for _, y in some) and max(y for _, y in some) <= max(values) + 1e-9


POINTED_AT = """for (const s of document.querySelectorAll('figure svg')) {
  const b = s.getBoundingClientRect();
  s.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 9}));
}"""


def test_a_browser_shows_every_chart_with_its_data(fetched: Path, browser: Browser) -> None:
    html_of(fetched)
    tab = browser.tab((fetched / "report.html").as_uri(), width=390)
    pace.until(lambda: tab.value("document.readyState") == "complete", 30, "it is not drawn")
    tab.value("document.querySelectorAll('details').forEach((d) => d.open = true)")
    tab.value(POINTED_AT)
    page, history = Page(tab.value("document.documentElement.outerHTML")), read_history(fetched)
    assert set(page.data) == set(page.shapes) == CHARTS
    losses = page.data["loss"]["series"][0]["points"]
    assert losses == [[n["step"], float(f"{n['loss']:.5g}")] for n in history.steps]
    assert [s["name"] for s in page.data["shares"]["series"]] == [HEAD, WORKER]
    assert page.data["shares"]["series"][1]["points"][-1] == [12, 0]
    assert page.data["power"]["series"][0]["points"][0][1] == 360
    assert "What is <b>?" in page.words and "No </script> idea." in page.words
    assert "training 0." in page.words, "the read-out"
    assert tab.value("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than a phone"


def test_three_bars_a_step_say_where_its_time_went(fetched: Path) -> None:
    page = Page(html_of(fetched))
    head, worker = (page.data[f"parts of {node}"]["series"] for node in (HEAD, WORKER))
    assert [series["name"] for series in head] == ["computing", "waiting", "exchanging"]
    assert [series["points"][0] for series in head] == [[1, 1.25], [1, 0.1], [1, 0.1]]
    assert [series["points"][11] for series in head] == [[12, 2], [12, 0.1], [12, 0.1]]
    assert all(series["points"][11] == [12, 0] for series in worker), "it was away"
    assert page.shapes[f"parts of {HEAD}"] == 3 * 12


def test_recorded_steps_are_linked_where_they_are_here(fetched: Path) -> None:
    assert "perfetto" not in html_of(fetched)
    (fetched / "trace.json.gz").touch()
    text = html_of(fetched)
    assert '<a href="trace.json.gz">' in text and "ui.perfetto.dev" in text


def add(run: Path, recipe: str, events: list[Event]) -> None:
    for log in run.glob("nodes/*/events.jsonl"):
        log.write_text("".join(json.dumps(event) + "\n" for event in events) + log.read_text())
        (log.parent / "launch.json").write_text(json.dumps({"run": "qa", "all": {"recipe": recipe}}))


def test_what_a_new_model_wrote_stands_on_the_page(fetched: Path) -> None:
    lines = [{"given": f"text {number}", "wrote": f"goes <b>on</b> {number}"} for number in range(3)]
    add(
        fetched,
        "pretrain",
        [{"event": "samples", "time": 100.0 + step, "step": step, "lines": lines} for step in (4, 8, 12)],
    )
    history = read_history(fetched)
    assert [event["step"] for event in history.samples] == [4, 8, 12] and history.made == "model"
    words = words_of(fetched)
    assert "What it wrote while it learned" in words and "goes <b>on</b> 2" in words
    assert words.count("goes <b>on</b> 0") == 3, "one text at each evaluation, all of them at the last"
    assert "What it made is not here yet" in words
    (fetched / "model").mkdir()
    assert "What it made lies beside this page" in words_of(fetched)


def test_pictures_show_their_accuracy_and_what_is_mixed_up(fetched: Path) -> None:
    measured = [held_out(146.14, 14, 0.4) | {"metrics": {"top1": 0.7}}]
    measured += [held_out(146.16, 16, 0.4) | {"metrics": {"top1": 0.8, "top5": 0.99}}]
    mixed = [{"given": "Shirt", "wrote": "Coat, 3 times of 9"}]
    add(fetched, "images", [*measured, {"event": "samples", "time": 146.5, "step": 16, "lines": mixed}])
    words = words_of(fetched)
    assert "top1 0.8 · top5 0.99" in words
    assert "Which classes it mixes up" in words and "Coat, 3 times of 9" in words and "What it wrote" not in words


def test_fine_tuning_shows_no_samples(fetched: Path) -> None:
    history = read_history(fetched)
    assert history.samples == [] and history.made == "adapter"
    assert "What it wrote" not in words_of(fetched)
