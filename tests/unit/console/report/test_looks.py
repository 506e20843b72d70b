"""The report as a browser lays it out: on a desk, on a phone, light, dark and on paper."""

from __future__ import annotations

import base64
import json
import re
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from console.report import svg_charts
from console.report.page import TEMPLATE, write_page
from console.report.read_run import read_history
from tests.support import pace
from tests.support.browser import BRIGHTNESS, OVERLAPS, Browser, Tab

LETTERS = """Math.min(...[...document.querySelectorAll("svg text")].map((t) =>
  parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getBoundingClientRect().width / 720))"""
OUTSIDE_ITS_CHART = """[...document.querySelectorAll('svg')].flatMap((svg) => {
  const whole = svg.getBoundingClientRect();
  const boxes = [...svg.querySelectorAll('text')].map((t) => [t.textContent, t.getBoundingClientRect()]);
  return boxes.filter(([, b]) => b.left < whole.left - 1 || b.right > whole.right + 1).map(([words]) => words);
})"""
OUTSIDE = """[...document.querySelectorAll("svg text, table.stacked tbody :is(th, td)")].filter((one) => {
  const box = one.getBoundingClientRect();
  return box.left < 0 || box.right > innerWidth;
}).map((one) => one.textContent)"""
HIDDEN = """[...document.querySelectorAll("table.stacked tbody :is(th, td)")].map((cell) => !cell.offsetWidth)"""
LAST_BUT_ONE = """const loss = document.querySelector("svg");
loss.focus();
for (const key of ["End", "ArrowLeft"]) loss.dispatchEvent(new KeyboardEvent("keydown", {key}));
document.querySelector(".readout").textContent"""


@pytest.fixture
def page(fetched: Path) -> Path:
    answers = json.loads((fetched / "answers.json").read_text())
    (fetched / "answers.json").write_text(json.dumps(answers | {"base": {"loss": 6.6}, "adapter": {"loss": 0.501}}))
    return write_page(read_history(fetched), fetched / "report.html")


def opened(browser: Browser, page: Path, **look: Any) -> Tab:
    tab = browser.tab(page.as_uri(), **look)
    pace.until(lambda: tab.value("document.readyState") == "complete", 30, "it is not drawn")
    tab.value("document.querySelectorAll('details').forEach((d) => d.open = true)")
    return tab


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_read_on_a_desk_and_on_a_phone(browser: Browser, page: Path, width: int, dark: bool) -> None:
    tab = opened(browser, page, width=width, dark=dark)
    assert tab.value("document.documentElement.scrollWidth <= innerWidth") and tab.value(LETTERS) >= 12
    assert tab.value(OVERLAPS) == [] and tab.value(OUTSIDE) == []
    hidden = tab.value(HIDDEN)
    assert hidden and not any(hidden), "no column of the machines is lost"
    ink, paper = tab.value(BRIGHTNESS)
    assert (ink > paper + 120) if dark else (paper > ink + 120)


def test_it_is_read_without_eyes_and_without_a_pointer(browser: Browser, page: Path) -> None:
    tab = opened(browser, page)

    def count(what: str) -> int:
        return int(tab.value(f"document.querySelectorAll('{what}').length"))

    levels = tab.value("[...document.querySelectorAll('h1, h2, h3')].map((h) => +h.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1 and all(b <= a + 1 for a, b in pairwise(levels))
    assert count("main") == 1 and count("th:not([scope])") == 0
    assert count("figure details.figures table") == count("figure") == 8, "figures behind each chart"
    assert tab.value(LAST_BUT_ONE).startswith("step 11:  training 0.3637  ·  held-out –")


@pytest.mark.parametrize("first", [100.0, 100.0135])
def test_the_first_readings_of_a_page_opened_late_have_room(browser: Browser, first: float) -> None:
    points = [(first + 0.0004 * i, 64.0) for i in range(3)]
    line = svg_charts.Line(name="gpu-worker-1", points=points, colour="var(--n1)")
    axes = svg_charts.Axes(x_name="minutes", y_name="°C", from_zero=False)
    look = (TEMPLATE / "run.css").read_text()
    svg = svg_charts.line_chart("cards", [line], axes)
    phone = '<!doctype html><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    page = quote(f"{phone}<style>{look}</style><main><figure>{svg}</figure></main>")
    tab = browser.tab(f"data:text/html,{page}", width=390)
    pace.until(lambda: tab.value("document.querySelectorAll('svg text').length") > 6, 30, "no chart")
    assert tab.value(OVERLAPS) == []
    assert tab.value(OUTSIDE_ITS_CHART) == []


def test_it_is_printed_in_colour(browser: Browser, page: Path) -> None:
    paper = base64.b64decode(opened(browser, page, dark=True).call("Page.printToPDF")["data"])
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper, re.DOTALL)
    drawn = b"".join(zlib.decompressobj().decompress(stream) for stream in streams if stream[:1] == b"\x78")
    strokes = {
        tuple(round(255 * float(part)) for part in found.split()) for found in re.findall(rb"([\d. ]+) RG", drawn)
    }
    assert (0x1D, 0x22, 0x27) in strokes, "the line in its colour for light paper"


def test_the_order_is_what_a_reader_asks_for(page: Path) -> None:
    text = page.read_text()
    order = ["<h1>", 'id="outcome"', "Was it worth it?", 'class="about"', 'id="answers"', 'id="use"', 'id="loss"',
             'id="nodes"', 'id="news"', "Throughput, shares and waiting", "How it was trained"]  # fmt: skip
    places = [text.index(word) for word in order]
    assert places == sorted(places)
