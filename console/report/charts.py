"""Charts as SVG text: lines, stacked areas, and bars. Pure functions; the colours are CSS variables of the page."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

WIDTH, HEIGHT = 720, 260
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 24, 34
MOST_POINTS = 360
SMOOTHED_FROM = 40
"""Points; fewer are a trend by themselves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    name: str
    points: list[tuple[float, float]]
    colour: str
    """A CSS colour, mostly var(--n1)."""
    faint: bool = False
    dots: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """Something that happened at a place of the x axis; `label` leads to the list of what happened."""

    x: float
    label: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Axes:
    x_name: str
    y_name: str
    from_zero: bool = True


def line_chart(name: str, lines: Sequence[Line], axes: Axes, marks: Sequence[Mark] = ()) -> str:
    drawn = [line for line in lines if line.points]
    if not drawn:
        return ""
    thin = [
        Line(name=line.name, points=thinned(line.points), colour=line.colour, faint=line.faint, dots=line.dots)
        for line in drawn
    ]
    frame = Frame.around([point for line in thin for point in line.points], axes)
    shapes = [frame.path(line) for line in thin]
    return frame.figure(name, shapes, thin, axes, marks)


def stacked_chart(name: str, lines: Sequence[Line], axes: Axes, marks: Sequence[Mark] = ()) -> str:
    """All lines have points at the same places of x."""
    thin = [Line(name=line.name, points=thinned(line.points), colour=line.colour) for line in lines if line.points]
    if not thin:
        return ""
    xs = [x for x, _ in thin[0].points]
    heights = [[y for _, y in line.points] for line in thin]
    tops = [
        list(level) for level in accumulate(heights, lambda low, own: [a + b for a, b in zip(low, own, strict=True)])
    ]
    frame = Frame.around([(x, y) for x, y in zip(xs, tops[-1], strict=True)], axes)
    shapes = []
    below = [0.0] * len(xs)
    for line, top in zip(thin, tops, strict=True):
        there = [frame.place(x, y) for x, y in zip(xs, top, strict=True)]
        back = [frame.place(x, y) for x, y in zip(reversed(xs), reversed(below), strict=True)]
        outline = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in [*there, *back]) + "Z"
        shapes.append(f'<path class="area" d="{outline}" fill="{line.colour}"/>')
        below = top
    return frame.figure(name, shapes, thin, axes, marks)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where a value lies on the drawing."""

    x_low: float
    x_high: float
    y_ticks: list[float]

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]], axes: Axes) -> Frame:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low = 0.0 if axes.from_zero else min(ys)
        high = max([*ys, low])
        if high - low < 1e-9:
            high = low + (abs(low) or 1.0)
        x_low, x_high = min(xs), max(xs)
        return cls(x_low, x_high if x_high > x_low else x_low + 1, nice_ticks(low, high))

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def path(self, line: Line) -> str:
        places = [self.place(x, y) for x, y in line.points]
        if line.dots:
            return "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{line.colour}"/>' for x, y in places)
        d = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        return f'<path class="{"line faint" if line.faint else "line"}" d="{d}" stroke="{line.colour}"/>'

    def figure(self, name: str, shapes: list[str], lines: Sequence[Line], axes: Axes, marks: Sequence[Mark]) -> str:
        parts = [*self._grid(axes), *shapes, *self._marks(marks), '<line class="cursor" y1="0" y2="0"/>']
        svg = (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(name)}" '
            f'data-left="{LEFT}" data-right="{WIDTH - RIGHT}" data-top="{TOP}" data-bottom="{HEIGHT - BOTTOM}" '
            f'data-low="{self.x_low:g}" data-high="{self.x_high:g}">{"".join(parts)}</svg>'
        )
        return f'{legend(lines)}{svg}<output class="readout"></output>{_data(axes, lines)}'

    def _grid(self, axes: Axes) -> list[str]:
        parts = []
        for y in self.y_ticks:
            _, at = self.place(self.x_low, y)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="tick end" x="{LEFT - 7}" y="{at + 4:.1f}">{short(y)}</text>')
        for x in nice_ticks(self.x_low, self.x_high, 7):
            if self.x_low <= x <= self.x_high:
                at, _ = self.place(x, 0)
                parts.append(f'<text class="tick middle" x="{at:.1f}" y="{HEIGHT - BOTTOM + 17}">{short(x)}</text>')
        parts.append(f'<text class="axis end" x="{WIDTH - RIGHT}" y="{HEIGHT - 3}">{html.escape(axes.x_name)}</text>')
        parts.append(f'<text class="axis" x="{LEFT}" y="{TOP - 7}">{html.escape(axes.y_name)}</text>')
        return parts

    def _marks(self, marks: Sequence[Mark]) -> list[str]:
        parts = []
        for mark in marks:
            if self.x_low <= mark.x <= self.x_high:
                at, _ = self.place(mark.x, 0)
                parts.append(f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
                parts.append(f'<text class="mark middle" x="{at:.1f}" y="{TOP - 5}">{html.escape(mark.label)}</text>')
        return parts


def legend(lines: Sequence[Line]) -> str:
    if len(lines) < 2:
        return ""
    items = (f'<i{faint(line)} style="background:{line.colour}"></i>{html.escape(line.name)}' for line in lines)
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def faint(line: Line) -> str:
    return ' class="faint"' if line.faint else ""


def _data(axes: Axes, lines: Sequence[Line]) -> str:
    """What the chart shows, for the pointer's read-out (and for whoever reads the page by program)."""
    series = [
        {"name": line.name, "points": [[round(x, 4), float(f"{y:.5g}")] for x, y in line.points]} for line in lines
    ]
    text = json.dumps({"x": axes.x_name, "y": axes.y_name, "series": series}, ensure_ascii=False)
    return f'<script type="application/json">{text.replace("</", "<" + chr(92) + "/")}</script>'


def thinned(points: list[tuple[float, float]], most: int = MOST_POINTS) -> list[tuple[float, float]]:
    """At most so many points: neighbours become their mean."""
    size = math.ceil(len(points) / most)
    if size <= 1:
        return points
    groups = [points[i : i + size] for i in range(0, len(points), size)]
    return [(sum(x for x, _ in g) / len(g), sum(y for _, y in g) / len(g)) for g in groups]


def smoothed(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """The mean over a twentieth of the run around each point, so that the trend shows in the noise."""
    reach = len(points) // SMOOTHED_FROM
    sums = [0.0, *accumulate(y for _, y in points)]
    out = []
    for i, (x, _) in enumerate(points):
        near = min(reach, i, len(points) - 1 - i)  # the same reach on both sides, else the ends are bent
        out.append((x, (sums[i + near + 1] - sums[i - near]) / (2 * near + 1)))
    return out


def nice_ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers that cover low to high."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw - 1e-12)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 10) for i in range(first, last + 1)]


def short(number: float) -> str:
    if abs(number) >= 10000:
        return f"{number / 1000:g}k"
    return f"{number:g}"
