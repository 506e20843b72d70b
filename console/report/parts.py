"""Where the time of a step goes, for each machine: bars of computing, waiting and combining the gradients."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise
from statistics import fmean

from console.report.charts import Axes, Frame, Line
from console.report.history import History
from console.report.series import chart
from train.runlog.state import Event, node_of

MOST_BARS = 48
"""More are thinner than a line: neighbours become their mean."""
GAP = 0.15
"""The share of a column's place that stays free on either side."""
COLOURS = {"compute": "var(--n3)", "wait": "var(--n5)", "exchange": "var(--n2)"}

Parts = Sequence[float]
"""Seconds, in the order of COLOURS."""


def part_charts(history: History) -> list[dict[str, str]]:
    """One for each machine, with the same scale."""
    steps = history.steps
    if not steps:
        return []
    size = math.ceil(len(steps) / MOST_BARS)
    columns = {node: in_columns([(s["step"], parts_of(s, node)) for s in steps], size) for node in history.nodes}
    highest = max(sum(parts) for some in columns.values() for _, parts in some)
    return [
        chart(f"parts of {node}", node, "", bars(f"parts of the steps of {node}", some, size, highest))
        for node, some in columns.items()
    ]


def parts_of(step: Event, node: str) -> Parts | None:
    """The parts of a step's time, of the node's process that computed longest; None of a machine that was away."""
    own = [facts for process, facts in step["nodes"].items() if node_of(process) == node]
    if not own:
        return None
    slowest = max(own, key=lambda facts: float(facts["compute_s"]))
    return [float(slowest["compute_s"]), float(slowest["wait_s"]), float(step["sync_s"])]


def in_columns(found: Sequence[tuple[int, Parts | None]], size: int) -> list[tuple[float, Parts]]:
    """The mean of as many steps each, in their middle; of those in which the machine was there."""
    columns: list[tuple[float, Parts]] = []
    for i in range(0, len(found), size):
        group = found[i : i + size]
        there = [parts for _, parts in group if parts is not None] or [[0.0] * len(COLOURS)]
        middle = (group[0][0] + group[-1][0]) / 2
        columns.append((middle, [fmean(part) for part in zip(*there, strict=True)]))
    return columns


def bars(name: str, columns: Sequence[tuple[float, Parts]], wide: int, highest: float) -> str:
    axes = Axes(x_name="step", y_name="seconds", whole="x")
    lines = [
        Line(name=part, points=[(x, parts[number]) for x, parts in columns], colour=colour)
        for number, (part, colour) in enumerate(COLOURS.items())
    ]
    first, last = columns[0][0] - wide / 2, columns[-1][0] + wide / 2
    frame = Frame.around([(first, 0.0), (last, highest)], axes)
    shapes = []
    for x, parts in columns:
        left, right = (frame.place(x + side * wide * (0.5 - GAP), 0.0)[0] for side in (-1, 1))
        tops = [frame.place(x, height)[1] for height in accumulate(parts, initial=0.0)]
        shapes += [
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{low - top:.1f}" fill="{colour}"/>'
            for (low, top), colour in zip(pairwise(tops), COLOURS.values(), strict=True)
        ]
    return frame.figure(name, shapes, lines, axes, ())
