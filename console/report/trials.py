"""The trials of a sweep for who watches and who reads its report: a table, and a line for each through all settings."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from console.report.svg_charts import BOTTOM, HEIGHT, TOP, WIDTH, short
from console.text_layout import counted, drawn
from train.runlog.trials import SWEEP, Trial, best, ranked, shown, summary, words

EDGE = 70
"""Beside the first and the last axis there is room for their names."""
LOG_FROM = 30.0
"""From how many times the smallest value on the largest makes an axis of orders of size."""
LOSS = "held-out loss"
IN_WORDS = {"done": "", "running": "is running", "pruned": "ended early", "failed": "failed"}


def read(folder: Path) -> list[Trial]:
    """The trials of a sweep that is over, as its results have them."""
    facts = json.loads((folder / SWEEP).read_text())["trials"]
    return [
        Trial(
            number=int(trial["trial"]),
            node=str(trial["node"]),
            params=trial["params"],
            state=str(trial["state"]),
            losses=tuple((int(step), float(loss)) for step, loss in trial["losses"]),
            total=int(trial["total"]),
            seconds=float(trial["seconds"]),
            reason=str(trial["reason"]),
        )
        for trial in facts
    ]


def rows(trials: Sequence[Trial]) -> list[dict[str, str]]:
    """A row of the table for each trial, the best first."""
    return [
        {
            "trial": str(one.number),
            **{name: shown(value) for name, value in one.params.items()},
            LOSS: "–" if one.loss is None else f"{one.loss:.4f}",
            "steps": f"{one.steps}/{one.total}" if one.total else "–",
            "machine": one.node,
            "state": one.reason if one.state == "failed" else IN_WORDS[one.state],
        }
        for one in ranked(trials)
    ]


def table_lines(folder: Path, most: int) -> list[str]:
    trials = read(folder)
    ranked_rows = rows(trials)
    names = list(dict.fromkeys(name for row in ranked_rows for name in row))
    table = [tuple(names), *(tuple(row.get(name, "") for name in names) for row in ranked_rows[:most])]
    left = len(ranked_rows) - most
    return [
        summary(trials, len(trials)),
        *drawn(table),
        *([f"  and {counted(left, 'more trial')}"] if left > 0 else []),
    ]


def view(trials: Sequence[Trial], total: int) -> dict[str, object]:
    """The table and the picture, for the report and the live page."""
    ranked_rows = rows(trials)
    return {
        "summary": summary(trials, total),
        "names": list(dict.fromkeys(name for row in ranked_rows for name in row)),
        "rows": ranked_rows,
        "chart": {
            "key": "trials",
            "title": "All trials",
            "text": "A line is a trial, from its settings to its held-out loss; the darker, the better.",
            "svg": parallel_chart(trials),
        },
    }


def figures(trials: Sequence[Trial]) -> list[tuple[str, str, str]]:
    """What a person looks for first, each with what must be said beside it."""
    found = best(trials)
    by_state = {state: sum(one.state == state for one in trials) for state in IN_WORDS}
    rest = [f"{by_state['pruned']} ended early", f"{by_state['failed']} failed", f"{by_state['running']} running"]
    beside = ", ".join(one for one in rest if not one.startswith("0 "))
    first = ("best held-out loss", f"{found.loss:.4f}" if found else "none yet", words(found.params) if found else "")
    return [first, ("trained to their end", counted(by_state["done"], "trial"), beside)]


# -- the picture -------------------------------------------------------------------------------------------------------


class Axis:
    """A setting, or the loss: where a value stands on it, from 0 to 1, and what is written beside it."""

    def __init__(self, name: str, values: Sequence[Any]) -> None:
        self.name = name
        numbers = [value for value in values if isinstance(value, (int, float)) and not isinstance(value, bool)]
        self.listed = sorted({shown(value) for value in values}) if len(numbers) < len(values) else []
        self.low, self.high = (
            (min(numbers), max(numbers)) if not self.listed else (0.0, max(1.0, len(self.listed) - 1.0))
        )
        self.is_log = not self.listed and self.low > 0 and self.high / self.low >= LOG_FROM

    def up(self, value: Any) -> float:
        at = float(self.listed.index(shown(value))) if self.listed else float(value)
        if self.high == self.low:
            return 0.5
        if self.is_log:
            return math.log(at / self.low) / math.log(self.high / self.low)
        return (at - self.low) / (self.high - self.low)

    @property
    def labels(self) -> list[tuple[float, str]]:
        if self.listed:
            return [(self.up(value), value) for value in self.listed]
        return [(self.up(value), short(value)) for value in dict.fromkeys((self.low, self.high))]


def parallel_chart(trials: Sequence[Trial]) -> str:
    """A line for each trial, through its settings to its loss; empty where no trial has one."""
    measured = [one for one in ranked(trials) if one.loss is not None]
    if not measured:
        return ""
    names = list(dict.fromkeys(name for one in measured for name in one.params))
    axes = [Axis(name, [one.params[name] for one in measured if name in one.params]) for name in names]
    axes.append(Axis(LOSS, [one.loss for one in measured]))
    apart = (WIDTH - 2 * EDGE) / max(1, len(axes) - 1)
    places = {axis.name: EDGE + number * apart for number, axis in enumerate(axes)}
    found = best(measured)
    shapes = [line(one, axes, places, rank / len(measured), found) for rank, one in reversed(list(enumerate(measured)))]
    parts = [*(part for axis in axes for part in drawn_axis(axis, places[axis.name])), *shapes]
    return (
        f'<svg class="chart parallel" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="all trials, by settings and held-out loss">{"".join(parts)}</svg>'
    )


def line(one: Trial, axes: Sequence[Axis], places: Mapping[str, float], behind: float, found: Trial | None) -> str:
    values = {**one.params, LOSS: one.loss}
    points = [(places[axis.name], height(axis.up(values[axis.name]))) for axis in axes if axis.name in values]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    colour = "var(--held)" if found and one.number == found.number else "var(--n1)"
    title = f"<title>{html.escape(f'trial {one.number}: {words(values)}')}</title>"
    faint = f"{1 - 0.85 * behind:.2f}"
    return f'<path class="line" d="{path}" stroke="{colour}" opacity="{faint}">{title}</path>'


def height(up: float) -> float:
    return HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def drawn_axis(axis: Axis, at: float) -> list[str]:
    name = f'<text class="axis middle" x="{at:.1f}" y="{HEIGHT - 5}">{html.escape(axis.name)}</text>'
    beside = [
        f'<text class="tick end" x="{at - 7:.1f}" y="{height(up) + 4:.1f}">{html.escape(text)}</text>'
        for up, text in axis.labels
    ]
    upright = f'<line class="grid" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    return [upright, name, *beside]
