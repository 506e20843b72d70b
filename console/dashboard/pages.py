"""The live page's parts: those of the report, drawn by the same templates, behind a head that says how it is now."""

from __future__ import annotations

import html
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import mean
from typing import Any

from console.dashboard.feed import Feed
from console.electricity import number
from console.report.charts import swatch
from console.report.page import environment, live_view, view
from console.report.series import colour
from console.run_in_words import gpu_gb, rates
from console.words import duration, wh_or_kwh
from train.runlog.stages import Part, parts_of
from train.runlog.state import by_node, rows_of

REPORT = ("samples", "loss", "parts", "news", "quiet", "how")
"""Blocks of templates/run.html.j2, in their order; `live` comes before them. The other charts have a page."""
SELDOM = 1000
"""Drawing the charts takes at most so small a part of the time: one of 1000."""
CALM_S = 5.0
HEAD_S = 0.9
STEPS = 15


@dataclass
class Pages:
    """The newest drawing of each part, and its number. A part is replaced as a whole, so nothing can be doubled."""

    feed: Feed
    inventory: str
    version: int = 0
    parts: dict[str, tuple[int, str]] = field(default_factory=dict)
    title: str = "Motley"
    head_at: float = -60.0
    drawn_at: float = 0.0
    cost_s: float = 0.0
    urgent: int = -1
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.templates = environment()

    def refresh(self) -> None:
        """What cannot be drawn is said on the page; the next drawing is tried."""
        with self.lock:
            try:
                self._draw()
            except Exception as error:
                said = html.escape(f"this page cannot be drawn ({type(error).__name__}: {error}); the run continues")
                self._put("live", f'<p id="word">{said}</p>')

    def _draw(self) -> None:
        """The head when its time has come; the charts when something happened, or so seldom that they cost little."""
        self.head_at = time.monotonic()
        self._put("live", self._live())
        urgent = self.feed.urgent
        pause_s = max(CALM_S, SELDOM * self.cost_s)
        if urgent == self.urgent and time.monotonic() - self.drawn_at < pause_s:
            return
        began = time.thread_time()
        if history := self.feed.history():
            shown = live_view(history)
            for name in REPORT:
                self._put(name, self.block(name, shown))
        self.urgent, self.drawn_at, self.cost_s = urgent, time.monotonic(), time.thread_time() - began

    def due(self) -> bool:
        return self.feed.urgent != self.urgent or time.monotonic() - self.head_at >= HEAD_S

    def block(self, name: str, shown: dict[str, Any]) -> str:
        template = self.templates.get_template("run.html.j2")
        return "".join(template.blocks[name](template.new_context(shown))).strip()

    def charts(self) -> str:
        """The blocks of the page that shows what the others leave out."""
        history = self.feed.history()
        shown = view(history) if history else {}
        return "".join(self.block(name, shown) for name in ("charts", "nodes")) if shown else ""

    def _put(self, name: str, text: str) -> None:
        if self.parts.get(name, (0, ""))[1] != text:
            self.version += 1
            self.parts[name] = (self.version, text)

    def newer(self, than: int) -> list[tuple[int, str, str]]:
        found = [(version, name, text) for name, (version, text) in self.parts.items() if version > than]
        return sorted(found)

    def page(self, name: str, **values: Any) -> str:
        shown = {"title": self.title, "inventory": self.inventory, "run": self.feed.run, **values}
        return self.templates.get_template(name).render(**shown)

    # -- how it is now -----------------------------------------------------------------------------------------------

    def _live(self) -> str:
        with self.feed.lock:
            facts = live(self.feed)
        self.title = facts["title"]
        return self.page("live.html.j2", **facts).strip()


def live(feed: Feed) -> dict[str, Any]:
    """State in words, when it is done by the clock, and each machine."""
    state, view = feed.state, feed.view
    ended = view.ended if view else None
    step, total = state.step, max(1, state.total)
    done = state.verdict == "done" or (state.ending or {}).get("event") == "done"
    steps = [change.event for change in feed.changes[-6 * STEPS :] if change.kind == "step"][-STEPS:]
    left_s = (state.total - step) * mean(float(event["step_s"]) for event in steps) if steps else 0.0
    away = sorted({*state.lost, *state.away})
    word = in_words(feed, done=done, away=away)
    missed = {*state.lost} - {*state.away}  # who steps aside is missed by nobody
    waits = word.startswith("waiting") and state.away
    good = done or (not missed and (word.startswith(("training", "starting")) or bool(waits)))
    until = time.strftime("%H:%M", time.localtime(time.time() + left_s))
    if left_s > 20 * 3600:
        until = time.strftime("%a %H:%M", time.localtime(time.time() + left_s))
    ends = "" if ended or done or not steps or state.state == "waiting" else f"done at {until}, in {duration(left_s)}"
    percent = 100 * step // total if state.total else 0
    return {
        "title": " · ".join(filter(None, [f"{percent} %", ends.partition(",")[0] or word[:40], feed.run or "Motley"])),
        "word": word,
        "good": good,
        "ends": ends,
        "step": step,
        "total": state.total,
        "percent": percent,
        "rates": " · ".join(rates(state.last)) if state.last else "",
        "losses": losses(feed),
        "machines": [machine(feed, name, place) for place, name in enumerate(names(feed))],
        "price": price(feed),
        "over": bool(ended),
        "lines": [line.partition("   ")[0].removeprefix(f"{word} · ") for line in ended.lines] if ended else [],
    }


def in_words(feed: Feed, *, done: bool, away: list[str]) -> str:
    state = feed.state
    if feed.problem:
        return feed.problem
    if done:
        return "done"
    if feed.view and feed.view.ended:
        return feed.view.ended.lines[0].partition("   ")[0]
    if state.state == "training" and away:
        return f"training without {', '.join(away)}"
    words = state.state if state.last or state.state != "training" else "starting"
    return f"waiting: {state.reason.removeprefix('waiting ')}" if state.state == "waiting" and state.reason else words


def names(feed: Feed) -> list[str]:
    return [node.name for node in feed.nodes]


def losses(feed: Feed) -> str:
    if not feed.evals:
        return ""
    first, last = feed.evals[0], feed.evals[-1]
    at_first = f"{first['loss']:.3f} (step {first['step']}) → " if first is not last else ""
    return f"held-out loss {at_first}{last['loss']:.3f} (step {last['step']})"


def machine(feed: Feed, name: str, place: int) -> dict[str, Any]:
    state, look = feed.state, feed.looks.get(name, {})
    rows = rows_of(state.last) if state.last else {}
    whole = max(1, sum(rows.values()))
    reading = feed.newest.get(name, {})
    words, since = "", 0.0
    if event := state.away.get(name):
        words, since = f"steps aside: {event['reason']}", float(event["time"])
    elif name in state.lost:
        words = f"away since step {state.lost[name]}"
    elif look.get("paused") and name not in rows:
        words = f"paused {look['paused']}"
    elif name in feed.silent and name not in rows:
        words = feed.silent[name]
    elif state.last and name not in rows:
        words = "does not take part"
    over = bool(feed.view and feed.view.ended)
    at_work = not words and not over and state.state != "waiting"
    heat, watts, used = (reading.get(key) for key in ("celsius", "watts", "used_mb"))
    facts = [
        f"{heat:.0f} °C" + (" hot" if heat >= 85 else "") if heat is not None else "",
        f"{watts:.0f} W" if watts is not None else "",
        f"{used / 1024:.1f} GB in use" if used else "",
        f"{gb:.1f} GB at most by the run" if state.last and (gb := gpu_gb(state.last, name)) else "",
        wh_or_kwh(feed.kwh[name]) if feed.kwh.get(name) else "",
    ]
    busy = by_node(state.last, "compute_s").get(name, 0.0) if state.last else 0.0
    part = parts_of(state.last).get(name)
    count = part.rows if part else rows.get(name, 0)
    speed = f"{count / busy:.1f} rows/s" if count and busy else ""
    return {
        "name": name,
        "colour": swatch(colour(place)),
        "state": "aside" if name in state.away or look.get("paused") else "away" if words else "",
        "share": int(100 * (part.work if part else rows[name]) / whole) if at_work and name in rows else None,
        "rows": rows_words(rows, part, name) if name in rows and at_work else "",
        "speed": speed if at_work else "",
        "away": "" if over else f"{words}{' since ' + time.strftime('%H:%M', time.localtime(since)) if since else ''}",
        "facts": " · ".join(filter(None, facts)),
    }


def rows_words(rows: Mapping[str, int], part: Part | None, name: str) -> str:
    if part and name != part.begins:
        return f"{part.words} of {part.layers} of {part.begins}'s rows"
    layers = f", {part.words} of {part.layers}" if part else ""
    return f"{rows[name]} of {max(1, sum(rows.values()))} rows{layers}"


def price(feed: Feed) -> str:
    """The energy of the cards and its price since this page watches: no more was read."""
    whole = sum(feed.kwh.values())
    each = next((found for one in feed.inventory.values() if (found := number(one.get("motley_kwh_price")))), None)
    if not whole:
        return ""
    cost = f", {whole * each:.2f} at {each:g} a kWh" if each else ""
    return f"the graphics cards took {wh_or_kwh(whole)}{cost} since this page watches"
