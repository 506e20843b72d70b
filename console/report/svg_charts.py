"""Charts as SVG text: lines, stacked areas, and bars. Pure functions; the colours are CSS variables of the page."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

WIDTH, HEIGHT = 720, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 52, 62
"""Above and below the drawing two lines of text have room, in the letters of a phone too."""
NAMES_APART = 28
LETTER = 17
"""The greatest width of a letter, on a phone."""
LONG_LABEL = 4
MOST_POINTS = 360
MOST_ROWS = 40
"""The most rows of the table behind a chart."""
SMOOTHED_FROM = 40
"""Points; fewer are a trend by themselves."""
COLOURS = 6
"""Machines with a colour of their own; the next ones begin again."""
TREND, HELD_OUT = "var(--ink)", "var(--held)"
"""No machine's colours."""
LABELS_APART = 44
"""Marks that are nearer to each other share a label: on a phone its letters are half as large again."""

End = tuple[str, float, float]
"""A name, and where it stands."""
Point = tuple[float, float | None]
"""None breaks the line: nothing was measured there. Two points at one x are an edge."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    name: str
    points: Sequence[Point]
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
    whole: str = ""
    """`x`, `y` or `xy`: where it counts things."""


def colour(number: int) -> str:
    return f"var(--n{number % COLOURS + 1})"


def chart(key: str, title: str, text: str, svg: str) -> dict[str, str]:
    """A chart as the templates take it."""
    return {"key": key, "title": title, "text": text, "svg": svg}


def line_chart(name: str, lines: Sequence[Line], axes: Axes, marks: Sequence[Mark] = ()) -> str:
    thin = [replace(line, points=thinned(line.points)) for line in lines]
    thin = [line for line in thin if any(y is not None for _, y in line.points)]
    if not thin:
        return ""
    frame = Frame.around([(x, y) for line in thin for x, y in line.points if y is not None], axes)
    shapes = [frame.path(line) for line in thin]
    return frame.figure(name, [*shapes, *frame.line_ends(thin)], thin, axes, marks)


def stacked_chart(name: str, lines: Sequence[Line], axes: Axes, marks: Sequence[Mark] = ()) -> str:
    """All lines have points at the same places of x."""
    thin = [replace(line, points=thinned(line.points)) for line in lines if line.points]
    if not thin:
        return ""
    xs = [x for x, _ in thin[0].points]
    heights = [[y or 0.0 for _, y in line.points] for line in thin]
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
    return frame.figure(name, [*shapes, *frame.area_ends(thin, tops)], thin, axes, marks)


@dataclass(frozen=True, slots=True)
class Frame:
    """The frame of a drawing, which says where a value lies on it."""

    x_low: float
    x_high: float
    y_ticks: list[float]
    x_whole: bool = False

    @classmethod
    def around(cls, points: Sequence[tuple[float, float]], axes: Axes) -> Frame:
        xs, ys = [x for x, _ in points], [y for _, y in points]
        low = 0.0 if axes.from_zero else min(ys)
        high = max([*ys, low])
        if high - low < 1e-9 and axes.from_zero:
            high = low + (abs(low) or 1.0)
        elif high - low < 1e-9:
            low, high = low - (0.05 * abs(low) or 1.0), high + (0.05 * abs(high) or 1.0)
        x_low, x_high = min(xs), max(xs)
        if x_low == x_high:  # a run of one step: its point stands in the middle
            x_low, x_high = x_low - 1, x_high + 1
        return cls(
            x_low,
            x_high,
            nice_ticks(low, high, whole="y" in axes.whole),
            "x" in axes.whole,
        )

    def place(self, x: float, y: float) -> tuple[float, float]:
        across = (x - self.x_low) / (self.x_high - self.x_low)
        up = (y - self.y_ticks[0]) / (self.y_ticks[-1] - self.y_ticks[0])
        return LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    def path(self, line: Line) -> str:
        pieces = [[self.place(x, y) for x, y in piece if y is not None] for piece in unbroken(line.points)]
        dots = [point for piece in pieces if line.dots or len(piece) == 1 for point in piece]
        circles = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{line.colour}"/>' for x, y in dots)
        d = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in piece) for piece in pieces if piece[1:])
        look = "line faint" if line.faint else "line"
        path = "" if line.dots or not d else f'<path class="{look}" d="{d}" stroke="{line.colour}"/>'
        return path + "".join(circles)

    def line_ends(self, lines: Sequence[Line]) -> list[str]:
        """The names at the ends of the lines, if there are several: the colour alone does not say which is which."""
        ends: list[End] = []
        for line in lines:
            known = [(x, y) for x, y in line.points if y is not None]
            if len(lines) > 1 and known and not line.faint:
                x, y = self.place(*known[-1])
                ends.append((line.name, x, y - 8))
        return [named(end) for end in apart(ends)]

    def area_ends(self, lines: Sequence[Line], tops: Sequence[Sequence[float]]) -> list[str]:
        """The names in the middle of each area, at its end."""
        ends: list[End] = []
        for line, top in zip(lines, tops, strict=True):
            last = max((i for i, (_, y) in enumerate(line.points) if y), default=None)
            if len(lines) > 1 and last is not None:
                x, own = line.points[last]
                at, y = self.place(x, top[last] - (own or 0.0) / 2)
                ends.append((line.name, at - 6, y + 5))
        return [named(end) for end in apart(ends)]

    def figure(self, name: str, shapes: list[str], lines: Sequence[Line], axes: Axes, marks: Sequence[Mark]) -> str:
        parts = [*self._grid(axes), *self._marks(marks), *shapes, '<line class="cursor" y1="0" y2="0"/>']
        svg = (
            f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" '
            f'role="img" aria-label="{html.escape(name)}" tabindex="0" '
            f'data-left="{LEFT}" data-right="{WIDTH - RIGHT}" data-top="{TOP}" data-bottom="{HEIGHT - BOTTOM}" '
            f'data-low="{self.x_low:g}" data-high="{self.x_high:g}">{"".join(parts)}</svg>'
        )
        behind = table(name, axes, lines)
        return f'{legend(lines)}{svg}<output class="readout"></output>{_data(axes, lines)}{behind}'

    def _grid(self, axes: Axes) -> list[str]:
        parts = []
        for y in self.y_ticks:
            _, at = self.place(self.x_low, y)
            parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
            parts.append(f'<text class="tick end" x="{LEFT - 7}" y="{at + 4:.1f}">{short(y)}</text>')
        for x in across(self.x_low, self.x_high, whole=self.x_whole):
            if self.x_low <= x <= self.x_high:
                at, _ = self.place(x, 0)
                half = LETTER * len(short(x)) / 2
                inside = min(max(at, half), WIDTH - half)
                parts.append(f'<text class="tick middle" x="{inside:.1f}" y="{HEIGHT - BOTTOM + 28}">{short(x)}</text>')
        parts.append(f'<text class="axis end" x="{WIDTH - RIGHT}" y="{HEIGHT - 5}">{html.escape(axes.x_name)}</text>')
        parts.append(f'<text class="axis" x="{LEFT}" y="{TOP - 32}">{html.escape(axes.y_name)}</text>')
        return parts

    def _marks(self, marks: Sequence[Mark]) -> list[str]:
        there = sorted((self.place(mark.x, 0)[0], mark.label) for mark in marks if self.x_low <= mark.x <= self.x_high)
        near: list[list[tuple[float, str]]] = []
        for at, label in there:
            if near and at - near[-1][-1][0] < LABELS_APART:
                near[-1].append((at, label))
            else:
                near.append([(at, label)])
        return [part for group in near for part in _marks_as_one(group)]


def _marks_as_one(group: list[tuple[float, str]]) -> list[str]:
    lines = [f'<line class="mark" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>' for at, _ in group]
    label = "–".join(dict.fromkeys((group[0][1], group[-1][1])))
    middle = (group[0][0] + group[-1][0]) / 2
    return [*lines, f'<text class="mark middle" x="{middle:.1f}" y="{TOP - 6}">{html.escape(label)}</text>']


def apart(ends: list[End]) -> list[End]:
    """The names, moved down until none is printed over another, and up again where that is below the drawing."""
    moved: list[End] = []
    for name, x, y in sorted(ends, key=lambda end: end[2]):
        lowest = moved[-1][2] + NAMES_APART if moved else TOP + 14
        moved.append((name, x, max(y, lowest)))
    limit = float(HEIGHT - BOTTOM - 4)
    for i in range(len(moved) - 1, -1, -1):
        name, x, y = moved[i]
        moved[i] = (name, x, min(y, limit))
        limit = moved[i][2] - NAMES_APART
    return moved


def named(end: End) -> str:
    name, x, y = end
    x = max(x, min(LEFT + LETTER * len(name), WIDTH - RIGHT))
    return f'<text class="name end" x="{x:.1f}" y="{y:.1f}">{html.escape(name)}</text>'


def table(name: str, axes: Axes, lines: Sequence[Line]) -> str:
    """The chart in figures, folded: for who does not see it, and for who wants to know exactly."""
    columns = [dict(reversed(thinned(line.points, MOST_ROWS))) for line in lines]
    names = [axes.x_name, *(line.name for line in lines)]
    head = "".join(f'<th scope="col" class="number">{html.escape(word)}' for word in names)
    rows = []
    for x in sorted({x for column in columns for x in column}):
        cells = "".join(f'<td class="number">{exact(column.get(x))}' for column in columns)
        rows.append(f'<tr><th scope="row" class="number">{exact(x)}{cells}</tr>')
    what = f"{html.escape(name)} in figures"
    return (
        f'<details class="figures"><summary>Show the numbers</summary><div class="wide" tabindex="0" role="region" '
        f'aria-label="{what}"><table><caption>{what}: {html.escape(axes.y_name)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div></details>"
    )


def exact(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def legend(lines: Sequence[Line]) -> str:
    if len(lines) < 2:
        return ""
    items = (f'<i class="{swatch(line.colour)}{" faint" * line.faint}"></i>{html.escape(line.name)}' for line in lines)
    return f'<ul class="legend">{"".join(f"<li>{item}</li>" for item in items)}</ul>'


def swatch(colour: str) -> str:
    """The class of a colour: a live page allows no styles in its text."""
    return f"c-{colour.removeprefix('var(--').removesuffix(')')}"


def _data(axes: Axes, lines: Sequence[Line]) -> str:
    """What the chart shows, for the pointer's read-out (and for whoever reads the page by program)."""
    series = [
        {
            "name": line.name,
            "dots": line.dots,
            "points": [[round(x, 4), None if y is None else float(f"{y:.5g}")] for x, y in line.points],
        }
        for line in lines
    ]
    text = json.dumps({"x": axes.x_name, "y": axes.y_name, "series": series}, ensure_ascii=False)
    return f'<script type="application/json">{text.replace("<", chr(92) + "u003c")}</script>'


def finite(points: Sequence[Point]) -> list[Point]:
    """What is infinite or no number is as if it had not been measured."""
    return [(x, y if y is not None and math.isfinite(y) else None) for x, y in points]


def unbroken(points: Sequence[Point]) -> list[list[Point]]:
    """The pieces between the breaks; the points of a break (None) are a piece of their own."""
    pieces: list[list[Point]] = []
    for point in points:
        if pieces and (point[1] is None) == (pieces[-1][-1][1] is None):
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return pieces


def thinned(points: Sequence[Point], most: int = MOST_POINTS) -> list[Point]:
    """About so many points: neighbours become their mean, but for the ends of a piece and the edges in it."""
    points = finite(points)
    if len(points) <= most:
        return points
    size = math.ceil((len(points) - 2) / (most - 2))
    return [point for piece in unbroken(points) for part in _between_edges(piece) for point in _means(part, size)]


def _between_edges(piece: list[Point]) -> list[list[Point]]:
    at = [0, *(i for i in range(1, len(piece)) if piece[i][0] == piece[i - 1][0]), len(piece)]
    return [piece[first:end] for first, end in pairwise(at)]


def _means(part: list[Point], size: int) -> list[Point]:
    inner = [part[i : min(i + size, len(part) - 1)] for i in range(1, len(part) - 1, size)]
    means: list[Point] = [(g[len(g) // 2][0], _mean([y for _, y in g if y is not None])) for g in inner]
    return [part[0], *means, *part[1:][-1:]]


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def trend_lines(points: Sequence[Point]) -> list[Line]:
    """The lines of the training: of a short run its steps; of a longer one the trend, with the steps behind it."""
    if len(points) < SMOOTHED_FROM:
        return [Line(name="training", points=points, colour=TREND)]
    return [
        Line(name="training, each step", points=points, colour=TREND, faint=True),
        Line(name="training, smoothed", points=smoothed(points), colour=TREND),
    ]


def smoothed(points: Sequence[Point]) -> list[Point]:
    """The mean over a twentieth of the run around each point, so that the trend shows in the noise; where a piece has
    not so much on both sides, nothing: the points beside it would bend it, a single one would be a spike."""
    reach = len(points) // SMOOTHED_FROM
    return [point for piece in unbroken(finite(points)) for point in _smooth(piece, min(reach, (len(piece) - 1) // 2))]


def _smooth(piece: list[Point], reach: int) -> list[Point]:
    if piece[0][1] is None:
        return piece
    sums = [0.0, *accumulate(y or 0.0 for _, y in piece)]
    wide = 2 * reach + 1
    return [(piece[i + reach][0], (sums[i + wide] - sums[i]) / wide) for i in range(len(piece) - 2 * reach)]


def nice_ticks(low: float, high: float, about: int = 5, *, whole: bool = False) -> list[float]:
    """Round numbers that cover low to high; `whole` ones where halves do not exist."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / about
    exponent = max(math.floor(math.log10(raw)), 0 if whole else -99)
    power = 10.0**exponent
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw - 1e-12 and not (whole and m * power % 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, max(0, 2 - exponent)) for i in range(first, last + 1)]  # 0.3, not 0.30000000000000004


def across(low: float, high: float, *, whole: bool) -> list[float]:
    """Ticks whose labels have room beside each other in the letters of a phone."""
    ticks = nice_ticks(low, high, 7, whole=whole)
    return ticks if max(len(short(x)) for x in ticks) <= LONG_LABEL else nice_ticks(low, high, 3, whole=whole)


def short(number: float) -> str:
    if abs(number) >= 10000:
        return f"{number / 1000:g}k"
    return f"{number:g}"
