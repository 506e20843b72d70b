"""What a run's charts show: by step or by minute, for the run or for each node. A break where nothing was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from console.report import preference, rewards, svg_charts
from console.report.read_run import History
from console.report.svg_charts import HELD_OUT, Axes, Line, Mark, Point, chart, colour
from console.report.what_happened import numbered
from train.runlog.events import ON_DATA
from train.runlog.pipe_in_words import parts_of
from train.runlog.state import Event, by_node, node_of

LONGEST_GAP_S = 60.0
MOST_MARKS_IN_WORDS = 6
SAME_ROWS = 0.01
"""Part by which two losses over the same held-out rows may differ: another machine, another precision."""

Clock = Callable[[float], float]


def first_charts(history: History) -> list[dict[str, str]]:
    if rewards.is_rewarded(history):
        return [rewards.reward_chart(history, step_marks(history))]
    if preference.is_compared(history):
        return [preference.margin_chart(history, step_marks(history))]
    return [loss_chart(history)] if history.steps else []


def further_charts(history: History) -> list[dict[str, str]]:
    """The charts that are folded away."""
    if not history.steps:
        return []
    clock = minutes_since(history.began)
    marks = [Mark(x=clock(word["time"]), label=word["label"]) for word in numbered(history) if word["label"]]
    axes = Axes(x_name="minutes", y_name="tokens/s")
    tokens = svg_charts.stacked_chart("throughput", tokens_by_minute(history), axes, marks)
    return [
        chart("throughput", "Throughput", "Tokens a second, by the machine that trained them.", tokens),
        *answer_charts(history),
        *share_charts(history),
        *card_charts(history, clock, marks),
    ]


def answer_charts(history: History) -> list[dict[str, str]]:
    """What becomes of answers, where a run is trained by rewards or preferences."""
    marks = step_marks(history)
    if rewards.is_rewarded(history):
        return [make(history, marks) for make in (rewards.function_chart, rewards.length_chart, rewards.halves_chart)]
    if preference.is_compared(history):
        second = preference.score_chart if preference.is_scored(history) else preference.likelihood_chart
        return [preference.accuracy_chart(history, marks), second(history, marks), loss_chart(history)]
    return []


# -- loss --------------------------------------------------------------------------------------------------------------


def loss_chart(history: History) -> dict[str, str]:
    loss: list[Point] = [(float(step["step"]), loss_of(step)) for step in history.steps]
    held_out = Line(name="held-out", points=held_out_points(history), colour=HELD_OUT, dots=True)
    axes = Axes(x_name="step", y_name="loss", from_zero=False, whole="x")
    text = (
        "Lower is better. Held-out rows were never trained on: if their loss rises while training loss falls, "
        "the model is learning by heart."
    )
    marks = [f"{word['label']} {word['what']}" for word in numbered(history) if word["label"]]
    text += f" Marks: {' · '.join(marks)}." if 0 < len(marks) <= MOST_MARKS_IN_WORDS else ""
    if lost := next((int(x) for x, y in loss if y is None), None):
        text += f" From step {lost} on, the loss of some steps is infinite: a lower learning rate helps."
    lines = [*svg_charts.trend_lines(loss), held_out, *lines_by_data(history)]
    return chart("loss", "Loss", text, svg_charts.line_chart("loss", lines, axes, step_marks(history)))


def loss_of(event: Event) -> float | None:
    """The loss of a step or an evaluation; None where it was infinite, or no number at all."""
    loss = event["loss"]
    return float(loss) if loss is not None and math.isfinite(loss) else None


def held_out_points(history: History) -> list[Point]:
    """The run's own, and the base's before them where it was asked about the same rows."""
    points: list[Point] = [(float(event["step"]), loss_of(event)) for event in history.evals]
    before, after = history.asked_loss
    last = points[-1][1] if points else None
    if before is None or after is None or last is None:
        return points
    return [(0.0, before), *points] if abs(after - last) <= SAME_ROWS * last else points


def lines_by_data(history: History) -> list[Line]:
    """The held-out loss of each data set, where there are several."""
    names = dict.fromkeys(name for event in history.evals for name in by_data(event))
    return [
        Line(
            name=f"held-out {name}",
            points=[(float(event["step"]), by_data(event).get(name)) for event in history.evals],
            colour=colour(number),
            dots=True,
        )
        for number, name in enumerate(names)
    ]


def by_data(event: Event) -> dict[str, float]:
    metrics: dict[str, float] = event.get("metrics") or {}
    return {name: value for name, value in metrics.items() if name.startswith(ON_DATA)}


# -- by step -----------------------------------------------------------------------------------------------------------


def share_charts(history: History) -> list[dict[str, str]]:
    marks = step_marks(history)
    waits = [replace(line, points=svg_charts.smoothed(line.points)) for line in waiting_by_step(history)]
    rows = Axes(x_name="step", y_name="rows", whole="xy")
    part = Axes(x_name="step", y_name="% of the step", whole="x")
    text = "Rows of a step that each machine took. They follow its speed."
    if any(parts_of(step) for step in history.steps):
        text += " A machine that holds the model together with others is shown with its part of the computing."
    return [
        chart("shares", "Shares", text,
              svg_charts.stacked_chart("shares", rows_by_step(history), rows, marks)),
        chart("waiting", "Waiting",
              "Part of each step that a machine waited for slower ones. Small and alike means well balanced.",
              svg_charts.line_chart("waiting", waits, part, marks)),
    ]  # fmt: skip


def rows_by_step(history: History) -> list[Line]:
    """Step k lies between k - 1 and k; where others train than before, there is an edge."""
    values: list[tuple[float, dict[str, float]]] = []
    before: set[str] = set()
    for step in history.steps:
        rows = work_by_node(step)
        if rows.keys() != before:
            values.append((float(step["step"]) - 1, rows))
        values.append((float(step["step"]), rows))
        before = set(rows)
    return lines_of(history, values)


def work_by_node(step: Event) -> dict[str, float]:
    """Rows through all layers: of a machine in a pipe, its part of them."""
    return by_node(step, "rows") | {node: part.work for node, part in parts_of(step).items()}


def waiting_by_step(history: History) -> list[Line]:
    """Which part of each step a node waited: a line for each, broken where it was away."""
    waits = [(float(step["step"]), waiting_by_node(step)) for step in history.steps]
    return [
        Line(name=node, points=[(x, by.get(node)) for x, by in waits], colour=colour(number))
        for number, node in enumerate(history.nodes)
    ]


def waiting_by_node(step: Event) -> dict[str, float]:
    longest: dict[str, float] = {}
    for process, facts in step["nodes"].items():
        node = node_of(process)
        part = 100 * float(facts["wait_s"]) / max(1e-9, float(step["step_s"]))
        longest[node] = max(longest.get(node, 0.0), min(100.0, part))
    return longest


def step_marks(history: History) -> list[Mark]:
    """The marks of what happened between two steps."""
    marks = []
    for word in (word for word in numbered(history) if word["label"]):
        before = [step["step"] for step in history.steps if step["time"] <= word["time"]]
        if before:
            marks.append(Mark(x=float(max(before)), label=word["label"]))
    return marks


def lines_of(history: History, values: Sequence[tuple[float, dict[str, float]]]) -> list[Line]:
    return [
        Line(name=node, points=[(x, by.get(node, 0.0)) for x, by in values], colour=colour(number))
        for number, node in enumerate(history.nodes)
    ]


# -- by minute ---------------------------------------------------------------------------------------------------------


def minutes_since(began: float) -> Clock:
    return lambda when: (float(when) - began) / 60


def tokens_by_minute(history: History) -> list[Line]:
    """0 where nobody trained; an edge where that begins and ends, and where others train than before."""
    clock = minutes_since(history.began)
    values: list[tuple[float, dict[str, float]]] = []
    ended, before = history.began, set[str]()
    for step in history.steps:
        began, tokens = step["time"] - step["step_s"], tokens_by_node(step)
        if gap := began - ended > max(2.0, step["step_s"]):
            values += [(clock(ended), {}), (clock(began), {})]
        if gap or tokens.keys() != before:
            values.append((clock(began if gap else ended), tokens))
        values.append((clock(step["time"]), tokens))
        ended, before = step["time"], set(tokens)
    return lines_of(history, values)


def tokens_by_node(step: Event) -> dict[str, float]:
    rows = work_by_node(step)
    whole = max(1.0, sum(rows.values()))
    return {
        node: float(step["tokens"]) * share / whole / max(1e-9, float(step["step_s"])) for node, share in rows.items()
    }


def card_charts(history: History, clock: Clock, marks: list[Mark]) -> list[dict[str, str]]:
    def lines(key: str) -> list[Line]:
        return [
            Line(name=node, points=readings_over(history.cards.get(node, []), key, clock), colour=colour(number))
            for number, node in enumerate(history.nodes)
        ]

    degrees = Axes(x_name="minutes", y_name="°C", from_zero=False)
    return [
        chart("temperature", "Temperature of the graphics cards", "The hottest card of each machine.",
              svg_charts.line_chart("temperature", lines("celsius"), degrees, marks)),
        chart("power", "Power of the graphics cards", "All cards of each machine together.",
              svg_charts.line_chart("power", lines("watts"), Axes(x_name="minutes", y_name="W"), marks)),
    ]  # fmt: skip


def readings_over(readings: list[Event], key: str, clock: Clock) -> list[Point]:
    """The readings over time, with a break wherever nothing was read for long."""
    known = [(float(reading["time"]), float(reading[key])) for reading in readings if reading.get(key) is not None]
    points: list[Point] = [(clock(time), value) for time, value in known[:1]]
    for (before, _), (now, value) in pairwise(known):
        if now - before > LONGEST_GAP_S:
            points.append((clock((before + now) / 2), None))
        points.append((clock(now), value))
    return points


def kwh(readings: list[Event]) -> float | None:
    """Power over time, without the gaps in the readings; None where no two of them are close enough."""
    powers = [(float(r["time"]), float(r["watts"])) for r in readings if r.get("watts") is not None]
    joules = [
        (now - before) * (power_before + power) / 2
        for (before, power_before), (now, power) in pairwise(powers)
        if now - before <= LONGEST_GAP_S
    ]
    return sum(joules) / 3.6e6 if joules else None
