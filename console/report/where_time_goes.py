"""Where the time goes, for each machine: computing, waiting, exchanging gradients; over the run, and step by step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean
from typing import TypedDict

from console.report.read_run import History
from console.report.svg_charts import Axes, Frame, Line, chart, colour, swatch
from train.plan.speed.row_split import split_rows
from train.runlog.state import Event, node_of

MOST_BARS = 48
"""More are thinner than a line: neighbours become their mean."""
GAP = 0.15
"""The share of a column's place that stays free on either side."""
COLOURS = {"computing": "var(--p1)", "waiting": "var(--p2)", "exchanging": "var(--p3)"}
"""Greys: the colours are the machines'."""
MUCH = {"exchanging": 25, "waiting": 15}
"""Percent of the time from which something can be done about it."""

Parts = Sequence[float]
"""Seconds, in the order of COLOURS."""
Column = tuple[int, int, Parts]
"""The first and last step of those whose mean it is."""


def part_charts(history: History) -> list[dict[str, str]]:
    """A chart for each machine, all with the same scale."""
    steps = history.steps
    if not steps:
        return []
    size = math.ceil(len(steps) / MOST_BARS)
    columns = {node: in_columns([(s["step"], parts_of(s, node)) for s in steps], size) for node in history.nodes}
    highest = max(sum(parts) for some in columns.values() for _, _, parts in some)
    return [
        chart(f"parts of {node}", node, "", bars(f"parts of the steps of {node}", some, highest))
        for node, some in columns.items()
    ]


def parts_of(step: Event, node: str) -> Parts | None:
    """The parts of a step's time, of the node's process that computed longest; None of a machine that was away."""
    processes = [facts for process, facts in step["nodes"].items() if node_of(process) == node]
    if not processes:
        return None
    slowest = max(processes, key=lambda facts: float(facts["compute_s"]))
    return [max(0.0, float(part)) for part in (slowest["compute_s"], slowest["wait_s"], step["sync_s"])]


class PartRow(TypedDict):
    name: str
    colour: str
    percent: list[int]
    """How much of its time went into each part."""
    seconds: float


def part_table(history: History) -> list[PartRow]:
    """Each machine with the percent of its time that went into each part, over all steps in which it was there."""
    table: list[PartRow] = []
    for number, node in enumerate(history.nodes):
        there = [parts for step in history.steps if (parts := parts_of(step, node))]
        sums = [sum(part) for part in zip(*there, strict=True)]
        if whole := sum(sums):
            percent = split_rows(100, sums)
            table.append({"name": node, "colour": swatch(colour(number)), "percent": percent, "seconds": whole})
    return table


def part_advice(table: Sequence[PartRow]) -> str:
    """Whether that is good, and what helps where it is not."""
    whole = sum(row["seconds"] for row in table)
    if not whole or len(table) < 2:
        return ""
    mean = {
        part: sum(row["percent"][number] * row["seconds"] for row in table) / whole
        for number, part in enumerate(COLOURS)
    }
    if mean["exchanging"] >= MUCH["exchanging"]:
        much = f"{mean['exchanging']:.0f} % of the time goes over the network."
        return f"{much} A cable instead of Wi-Fi, or more rows a step (rows_per_step), makes the run faster."
    slow = [row["name"] for row in table if row["percent"][1] >= MUCH["waiting"]]
    if slow:
        return f"{', '.join(slow)} waited for slower machines: in a longer run the shares follow the speeds."
    return f"This is good: {mean['computing']:.0f} % of the time the machines compute."


def in_columns(found: Sequence[tuple[int, Parts | None]], size: int) -> list[Column]:
    """The mean of as many steps each (of the last ones maybe fewer), of those in which the machine was there."""
    columns: list[Column] = []
    for i in range(0, len(found), size):
        group = found[i : i + size]
        there = [parts for _, parts in group if parts is not None] or [[0.0] * len(COLOURS)]
        columns.append((group[0][0], group[-1][0], [fmean(part) for part in zip(*there, strict=True)]))
    return columns


def bars(name: str, columns: Sequence[Column], highest: float) -> str:
    """A column is as wide as the steps that it stands for."""
    axes = Axes(x_name="step", y_name="seconds", whole="x")
    lines = [
        Line(name=part, points=[((a + b) / 2, parts[number]) for a, b, parts in columns], colour=grey)
        for number, (part, grey) in enumerate(COLOURS.items())
    ]
    frame = Frame.around([(columns[0][0] - 0.5, 0.0), (columns[-1][1] + 0.5, highest)], axes)
    shapes = []
    for first, last, parts in columns:
        gap = GAP * (last - first + 1)
        left, right = (frame.place(x, 0.0)[0] for x in (first - 0.5 + gap, last + 0.5 - gap))
        tops = [frame.place(first, height)[1] for height in accumulate(parts, initial=0.0)]
        shapes += [
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{low - top:.1f}" fill="{grey}"/>'
            for (low, top), grey in zip(pairwise(tops), COLOURS.values(), strict=True)
        ]
    return frame.figure(name, shapes, lines, axes, ())
