"""A run's report as a reader finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from console.report.page import write_page
from console.report.read_run import read_history
from tests.support.run_files import Event, write


class Page(HTMLParser):
    """Its text, and for each chart its shapes and its data."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.shapes: dict[str, int] = {}
        self.data: dict[str, Any] = {}
        self.chart = self.within = ""
        self.feed(text)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.pieces).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.within = tag
        if tag == "figure":
            self.chart = known["data-chart"] or ""
        elif self.chart and tag in ("path", "circle", "rect") and any(known.get(name) for name in ("d", "r", "width")):
            self.shapes[self.chart] = self.shapes.get(self.chart, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        self.within = ""
        if tag == "figure":
            self.chart = ""

    def handle_data(self, data: str) -> None:
        if self.within == "script" and self.chart:
            self.data[self.chart] = json.loads(data)
        elif self.within not in ("script", "style"):
            self.pieces.append(data)


def html_of(run: Path) -> str:
    """`run`: the folder of its files."""
    return write_page(read_history(run), run / "report.html").read_text()


def words_of(run: Path) -> str:
    return Page(html_of(run)).words


def rewrite(
    run: Path, change: Callable[[Event], None] = lambda _: None, keep: Callable[[Event], bool] = lambda _: True
) -> Path:
    """The same run with other events, on each of its nodes."""
    for log in run.glob("nodes/*/events.jsonl"):
        lines = log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]  # a last line may be torn
        for event in events:
            change(event)
        write(log.parent, log.name, [event for event in events if keep(event)])
    return run
