"""The live page's parts: those of the report, drawn by the same templates, behind a head that says how it is now."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from console.dashboard.feed import LOOK_S, Feed
from console.electricity import money
from console.report.machines import card_words
from console.report.page import change, environment, live_view, model_and_data, view
from console.report.request import settings
from console.report.rewards import reward_of
from console.report.run_charts import loss_of
from console.report.svg_charts import colour, swatch
from console.text_layout import wh_or_kwh
from console.watch.run_in_words import gpu_gb, rates
from train.runlog.pipe_in_words import Part, parts_of
from train.runlog.state import Event, RunState, by_node, rows_of, time_of

REPORT = ("trials", "samples", "loss", "parts", "news", "quiet", "how")
"""Blocks of templates/run.html.j2, in their order; `live` comes before them. The other charts have a page."""
SELDOM = 1000
"""Drawing the charts takes at most so small a part of the time: one of 1000."""
CALM_S = 5.0
HEAD_S = 0.9
HOT = 85
OLD_S = 3 * LOOK_S
"""From this age on a reading is not of now."""


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

    def block(self, name: str, shown: Mapping[str, object]) -> str:
        template = self.templates.get_template("run.html.j2")
        return "".join(template.blocks[name](template.new_context(dict(shown)))).strip()

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
        self.title = str(facts["title"])
        return self.page("live.html.j2", **facts).strip()


def live(feed: Feed) -> dict[str, object]:
    """The state in words with the next step, when it is ready by the clock, and each machine."""
    state, view = feed.state, feed.view
    ended = view.ended if view else None
    step, total = state.step, max(1, state.total)
    done = state.verdict == "done" or (state.ending or {}).get("event") == "done"
    away = sorted({*state.lost, *state.away})
    word = in_words(feed, done=done, away=away)
    missed = {*state.lost} - {*state.away}  # who steps aside is missed by nobody
    well = state.state in ("training", "working", "starting") or (state.state == "waiting" and bool(state.away))
    good = done or (well and not (missed or feed.problem or ended))
    known = bool(state.last) and not in_pieces(state) and state.state != "waiting"
    ends = ready(state.left_s) if known and not ended and not done else ""
    percent = 100 * step // total if state.total else 0
    return {
        "title": " · ".join(filter(None, [f"{percent} %", ends.partition(" (")[0] or word[:40], feed.run or "Motley"])),
        "word": word,
        "good": good,
        "next": next_step(feed, done=done),
        "ends": ends,
        "step": step,
        "unit": "trial" if state.trials else state.last.get("event", "step"),
        "of": "of what is done" if in_pieces(state) else "of each step",
        "total": state.total,
        "epoch": epoch_words(state),
        "percent": percent,
        "rates": " · ".join(rates(state.last)) if state.last else "",
        "losses": losses(feed),
        "machines": [machine(feed, node.name, index) for index, node in enumerate(feed.nodes)],
        "about": about(feed),
        "over": bool(ended) or not state.total,
        "lines": [line.removeprefix(f"{word} · ") for line in ended.lines] if ended else [],
    }


def in_pieces(state: RunState) -> bool:
    return state.last.get("event") == "piece"


def epoch_words(state: RunState) -> str:
    """Which pass over the data it is in, of how many; nothing where the rows are not known."""
    if not state.epoch_steps or not state.step or in_pieces(state):
        return ""
    return f"epoch {math.ceil(state.step / state.epoch_steps)} of {round(state.total / state.epoch_steps, 1):g}"


def ready(left_s: float) -> str:
    """When it is ready by the clock, and how long until then: as exact as a forecast is."""
    at = time.localtime(time.time() + left_s)
    return f"Ready at about {time.strftime('%a %H:%M' if left_s > 20 * 3600 else '%H:%M', at)} ({roughly(left_s)})"


def roughly(seconds: float) -> str:
    if seconds < 60:
        return "less than a minute"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 10 * 60:
        return f"{minutes // 60} h {minutes % 60 // 10 * 10} min".removesuffix(" 0 min")
    return f"{round(minutes / 60)} h"


def next_step(feed: Feed, *, done: bool) -> dict[str, str]:
    """What a person does now, with its command; nothing while it trains."""
    state, ended = feed.state, feed.view.ended if feed.view else None
    if not feed.run:
        return {"why": "Start one:", "verb": "launch --model … --dataset …"}
    if done:
        return {"why": "Bring home what it has made, with its report:", "verb": f"fetch --run {feed.run}"}
    if ended:
        return {"why": "It can be continued:", "verb": f"launch --resume {feed.run}"}
    if feed.problem or (state.state == "waiting" and not state.away):
        return {"why": "Find out why:", "verb": "doctor"}
    return {}


def about(feed: Feed) -> list[tuple[str, str]]:
    """What stands below the state: model, data, the last checkpoint, what the cards have used."""
    facts = model_and_data(feed.launch) + settings(feed.launch)
    if feed.state.last.get("lr") is not None and feed.running:
        facts = [pair for pair in facts if pair[0] != "learning rate"]
        facts.append(("learning rate", f"{feed.state.last['lr']:.2g} now"))
    lines = facts[:2] + ([("settings", " · ".join(map(" ".join, facts[2:])))] if facts[2:] else [])
    if feed.saved:
        lines.append(("last checkpoint", f"step {feed.saved['step']}, {ago(feed.saved)}"))
    return [*lines, *([("electricity", used)] if (used := electricity(feed)) else [])]


def ago(event: Event) -> str:
    age = time.time() - time_of(event)
    return "just now" if age < 60 else f"{roughly(age)} ago"


def in_words(feed: Feed, *, done: bool, away: list[str]) -> str:
    state = feed.state
    if feed.problem:
        return feed.problem
    if done:
        return "done"
    if feed.view and feed.view.ended:
        return feed.view.ended.lines[0]
    if state.state == "training" and away:
        return f"training without {', '.join(away)}"
    words = state.state if state.last or state.state != "training" else "starting"
    return f"waiting: {state.reason.removeprefix('waiting ')}" if state.state == "waiting" and state.reason else words


def losses(feed: Feed) -> str:
    if not feed.evals:
        return ""
    first, last = feed.evals[0], feed.evals[-1]
    if reward_of(last) is not None:
        words = [f"{reward_of(event):.3f} (step {event['step']})" for event in (first, last)]
        return f"held-out reward {' → '.join(dict.fromkeys(words))}"
    words = [f"{change(loss_of(event), loss_of(event))} (step {event['step']})" for event in (first, last)]
    return f"held-out loss {' → '.join(dict.fromkeys(words))}"


def machine(feed: Feed, name: str, index: int) -> dict[str, object]:
    state, look = feed.state, feed.looks.get(name)
    paused = look["paused"] if look else ""
    rows = rows_of(state.last) if state.last else {}
    whole = max(1, sum(rows.values()))
    words, since, verb = "", 0.0, ""
    if event := state.away.get(name):
        words, since, verb = f"steps aside: {event['reason']}", float(event["time"]), f"unpause {name}"
        verb = verb if event.get("rule") == "paused" else ""
    elif name in state.lost:
        words, verb = f"away since step {state.lost[name]}", f"wake {name}"
    elif paused and name not in rows:
        words, verb = f"paused {paused}", f"unpause {name}"
    elif name in feed.silent and name not in rows:
        words, verb = feed.silent[name], f"wake {name}"
    elif state.last and name not in rows and not in_pieces(state):  # there it may not have ended one yet
        words, verb = "does not take part", "doctor"
    over = bool(feed.view and feed.view.ended)
    at_work = not words and not over and state.state != "waiting"
    busy = by_node(state.last, "compute_s").get(name, 0.0) if state.last else 0.0
    part = parts_of(state.last).get(name)
    count = part.rows if part else rows.get(name, 0)
    speed = f"{count / busy:.1f} rows/s" if count and busy else ""
    return {
        "name": name,
        "colour": swatch(colour(index)),
        "fill": colour(index),
        "card": card_words(feed.gpus.get(name, [])),
        "state": "aside" if name in state.away or paused else "away" if words else "",
        "share": round(100 * (part.work if part else rows[name]) / whole) if at_work and name in rows else None,
        "rows": rows_words(state, part, name) if name in rows and at_work else "",
        "speed": speed if at_work else "",
        "away": "" if over else f"{words}{' since ' + time.strftime('%H:%M', time.localtime(since)) if since else ''}",
        "next": "" if over else verb,
        "facts": facts_of(feed, name, away=bool(words)),
    }


def facts_of(feed: Feed, name: str, *, away: bool) -> str:
    """Its cards' newest figures; with their age where they are not of now."""
    reading, last = feed.newest.get(name, {}), feed.state.last
    heat, watts, used = (reading.get(key) for key in ("celsius", "watts", "used_mb"))
    facts = [
        f"{heat:.0f} °C" + (" hot" if heat >= HOT else "") if heat is not None else "",
        f"{watts:.0f} W" if watts is not None else "",
        f"{used / 1024:.1f} GB in use" if used else "",
    ]
    shown = " · ".join(filter(None, facts))
    if shown and (away or time.time() - time_of(reading) > OLD_S):
        shown = f"{ago(reading)}: {shown}"
    more = [
        f"{gb:.1f} GB at most by the run" if last and (gb := gpu_gb(last, name)) else "",
        f"{wh_or_kwh(feed.kwh[name])} used" if feed.kwh.get(name) else "",
    ]
    return " · ".join(filter(None, [shown, *more]))


def rows_words(state: RunState, part: Part | None, name: str) -> str:
    rows = rows_of(state.last)
    if part and name != part.begins:
        return f"{part.words} of {part.layers} of {part.begins}'s rows"
    layers = f", {part.words} of {part.layers}" if part else ""
    return f"{rows[name]} of {max(1, sum(rows.values()))} {'pieces' if in_pieces(state) else 'rows'}{layers}"


def electricity(feed: Feed) -> str:
    """The energy of the cards and its price since this page was started: no more was read."""
    whole, (each, currency) = sum(feed.kwh.values()), feed.price
    if not whole:
        return ""
    cost = f", {money(whole * each, currency)} at {money(each, currency)} a kWh" if each else ""
    return f"{wh_or_kwh(whole)}{cost}, by the graphics cards since you started this page"
