"""The report as a browser lays it out: on a desk, on a phone, light, dark and on paper."""

from __future__ import annotations

import html
import json
import re
import subprocess
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from console.report.page import write_page
from console.report.read_run import read_history

PROBE = """
document.querySelectorAll("details").forEach((d) => d.open = true);
const all = (what, root = document) => [...root.querySelectorAll(what)];
const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3;
const seen = {wide: document.documentElement.scrollWidth > innerWidth, overlaps: [], outside: [], columns: 0};
seen.letters = Math.min(...all("svg text").map((t) =>
  parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getBoundingClientRect().width / 720));
for (const svg of all("svg")) {
  const texts = all("text", svg).map((t) => [t.textContent, t.getBoundingClientRect()]);
  texts.forEach(([a, one], i) => texts.slice(i + 1).forEach(([b, other]) => {
    if (meet(one, other)) seen.overlaps.push([svg.ariaLabel, a, b]);
  }));
  for (const [a, box] of texts) if (box.left < 0 || box.right > innerWidth) seen.outside.push(a);
}
for (const cell of all("table.stacked tbody th, table.stacked tbody td")) {
  const box = cell.getBoundingClientRect();
  seen.columns += box.width > 0 && box.left >= 0 && box.right <= innerWidth;
}
seen.cells = all("table.stacked tbody th, table.stacked tbody td").length;
seen.unscoped = all("th:not([scope])").length;
seen.headings = all("h1, h2, h3").map((h) => +h.tagName[1]);
seen.main = all("main").length;
seen.figures = all("figure").length;
seen.tables = all("figure details.figures table").length;
seen.colours = ["color", "backgroundColor"].map((name) => getComputedStyle(document.body)[name]);
const loss = document.querySelector("svg");
loss.focus();
for (const key of ["End", "ArrowLeft"]) loss.dispatchEvent(new KeyboardEvent("keydown", {key}));
seen.readout = document.querySelector(".readout").textContent;
document.body.dataset.seen = JSON.stringify(seen);
"""


@pytest.fixture
def page(fetched: Path) -> Path:
    answers = json.loads((fetched / "answers.json").read_text())
    (fetched / "answers.json").write_text(json.dumps(answers | {"base": {"loss": 6.6}, "adapter": {"loss": 0.501}}))
    return write_page(read_history(fetched), fetched / "report.html")


def opened(browser: str, file: Path, *flags: str) -> str:
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", *flags, file.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def look(browser: str, page: Path, width: int, scheme: str) -> dict[str, Any]:
    probe = page.with_name("probe.html")
    probe.write_text(page.read_text().replace("</body>", f"<script>{PROBE}</script></body>"))
    colours = f"--blink-settings=preferredColorScheme={0 if scheme == 'dark' else 1}"
    text = opened(browser, probe, f"--window-size={width},900", colours, "--dump-dom")
    found = re.search(r'data-seen="([^"]*)"', text)
    assert found, text[-500:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_is_read_on_a_desk_and_on_a_phone_without_eyes_and_without_a_pointer(
    browser: str, page: Path, width: int, scheme: str
) -> None:
    seen = look(browser, page, width, scheme)
    assert not seen["wide"] and seen["letters"] >= 12
    assert seen["overlaps"] == [] and seen["outside"] == []
    assert seen["columns"] == seen["cells"] > 0, "no column of the machines is lost"
    ink, paper = (brightness(colour) for colour in seen["colours"])
    assert (ink > paper + 120) if scheme == "dark" else (paper > ink + 120)
    levels = seen["headings"]
    assert seen["main"] == 1 and seen["unscoped"] == 0 and levels[0] == 1 and levels.count(1) == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    assert seen["tables"] == seen["figures"] == 8, "figures behind each chart"
    assert seen["readout"].startswith("step 11:  training 0.3637  ·  held-out –"), seen["readout"]


def test_it_is_printed_in_colour(browser: str, page: Path, tmp_path: Path) -> None:
    paper = tmp_path / "report.pdf"
    opened(browser, page, f"--print-to-pdf={paper}", "--blink-settings=preferredColorScheme=0")
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", paper.read_bytes(), re.DOTALL)
    drawn = b"".join(zlib.decompressobj().decompress(stream) for stream in streams if stream[:1] == b"\x78")
    strokes = {
        tuple(round(255 * float(part)) for part in found.split()) for found in re.findall(rb"([\d. ]+) RG", drawn)
    }
    assert (0x1D, 0x22, 0x27) in strokes, "the line in its colour for light paper"


def brightness(colour: str) -> float:
    red, green, blue = map(int, re.findall(r"\d+", colour)[:3])
    return (red + green + blue) / 3


def test_the_order_is_what_a_reader_asks_for(page: Path) -> None:
    text = page.read_text()
    order = ["<h1>", 'id="outcome"', "Was it worth it?", 'class="about"', 'id="answers"', 'id="use"', 'id="loss"',
             'id="nodes"', 'id="news"', "Throughput, shares and waiting", "How it was trained"]  # fmt: skip
    places = [text.index(word) for word in order]
    assert places == sorted(places)
