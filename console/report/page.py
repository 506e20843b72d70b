"""One HTML file that needs no other: a run as a person wants to see it the next morning."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from console.report import charts
from console.report.charts import Axes, Line, Mark
from console.report.history import History
from train.runlog.state import Event, by_node, node_of

TEMPLATE = Path(__file__).parents[2] / "templates"
COLOURS = 6
LONGEST_GAP_S = 60.0


def write_page(history: History, file: Path) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template("report.html.j2").render(**view(history))
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
    return file


def view(history: History) -> dict[str, Any]:
    return {
        "history": history,
        "headline": headline(history),
        "outcome": outcome(history),
        "figures": figures(history),
        "charts": [chart for chart in all_charts(history) if chart["svg"]],
        "nodes": node_table(history),
        "cards": bool(history.cards) or any(node["gpu_gb"] for node in node_table(history)),
        "news": [word for word in numbered_news(history) if not word.get("quiet")],
        "quiet_news": [word for word in numbered_news(history) if word.get("quiet")],
        "plan": plan_against_reality(history),
        "answers": history.answers.get("questions", []),
        "decisions": history.starts[-1]["decisions"],
        "reasons": history.starts[-1]["reasons"],
        "when": time.strftime("%d %B %Y, %H:%M", time.localtime(history.began)),
    }


def outcome(history: History) -> str:
    if history.ending is None:
        return "no end was recorded: it is still running, or all its nodes died"
    return {
        "done": "done",
        "failed": f"failed: {history.ending.get('node', '')}: {history.ending.get('message', '')}",
        "stopped": f"stopped ({history.ending.get('reason', '')})",
    }[history.ending["event"]]


def headline(history: History) -> str:
    steps = f"{history.steps[-1]['step']} of {history.total_steps} steps" if history.steps else "no step was finished"
    nodes = f"{len(history.nodes)} nodes" if len(history.nodes) != 1 else "one node"
    return f"{steps} on {nodes} in {duration(history.seconds)}"


def figures(history: History) -> list[tuple[str, str]]:
    """The few numbers that a person looks for first."""
    if not history.steps:
        return []
    steps = history.steps
    few = max(1, min(5, len(steps) // 4))
    found = [("training loss", change(mean(steps[:few], "loss"), mean(steps[-few:], "loss")))]
    if history.evals:
        found.append(("held-out loss", change(history.evals[0]["loss"], history.evals[-1]["loss"])))
    tokens = sum(step["tokens"] for step in steps)
    found.append(("throughput", f"{tokens / max(1e-9, sum(step['step_s'] for step in steps)):,.0f} tokens/s"))
    found.append(("tokens", f"{tokens:,}"))
    if history.repeated:
        found.append(("steps trained twice", str(history.repeated)))
    if energy := sum(kwh(readings) for readings in history.cards.values()):
        found.append(("energy of the cards", f"{energy:.3g} kWh"))
    return found


def change(first: float, last: float) -> str:
    return f"{first:.3f} → {last:.3f}" if first != last else f"{last:.3f}"


def mean(steps: list[Event], key: str) -> float:
    return sum(float(step[key]) for step in steps) / len(steps)


def colour(number: int) -> str:
    return f"var(--n{number % COLOURS + 1})"


def all_charts(history: History) -> list[dict[str, str]]:
    if not history.steps:
        return []
    clock = minutes_since(history.began)
    marks = time_marks(history, clock)
    axes = Axes(x_name="minutes", y_name="tokens/s")
    tokens = charts.stacked_chart("throughput", per_node(history, tokens_by_node, clock), axes, marks)
    return [
        loss_chart(history),
        chart("throughput", "Throughput", "Tokens a second, by the node that trained them.", tokens),
        *share_charts(history),
        *card_charts(history, clock, marks),
    ]


def loss_chart(history: History) -> dict[str, str]:
    loss = [(float(step["step"]), float(step["loss"])) for step in history.steps]
    held_out = [(float(event["step"]), float(event["loss"])) for event in history.evals]
    lines = [*training_lines(loss), Line(name="held-out", points=held_out, colour=colour(1), dots=True)]
    axes = Axes(x_name="step", y_name="loss", from_zero=False)
    return chart(
        "loss",
        "Loss",
        "Lower is better. Held-out rows were never trained on: if their loss rises while training loss falls, "
        "the model is learning by heart.",
        charts.line_chart("loss", lines, axes, step_marks(history)),
    )


def share_charts(history: History) -> list[dict[str, str]]:
    marks, rows = step_marks(history), per_node(history, lambda step: by_node(step, "rows"), None)
    waits = [
        Line(name=line.name, points=charts.smoothed(line.points), colour=line.colour)
        for line in per_node(history, waiting_by_node, None)
    ]
    return [
        chart("shares", "Shares", "Rows of a step that each node took. They follow its speed.",
              charts.stacked_chart("shares", rows, Axes(x_name="step", y_name="rows"), marks)),
        chart("waiting", "Waiting",
              "Part of each step that a node waited for slower ones. Small and alike means well balanced.",
              charts.line_chart("waiting", waits, Axes(x_name="step", y_name="% of the step"), marks)),
    ]  # fmt: skip


def training_lines(loss: list[tuple[float, float]]) -> list[Line]:
    """Of a short run its steps; of a longer one the trend, with the steps behind it."""
    if len(loss) < charts.SMOOTHED_FROM:
        return [Line(name="training", points=loss, colour=colour(0))]
    return [
        Line(name="training, each step", points=loss, colour=colour(0), faint=True),
        Line(name="training, smoothed", points=charts.smoothed(loss), colour=colour(0)),
    ]


def chart(key: str, title: str, text: str, svg: str) -> dict[str, str]:
    return {"key": key, "title": title, "text": text, "svg": svg}


def card_charts(history: History, clock: Callable[[float], float], marks: list[Mark]) -> list[dict[str, str]]:
    def points(node: str, key: str) -> list[tuple[float, float]]:
        return [(clock(r["time"]), float(r[key])) for r in history.cards.get(node, []) if r.get(key) is not None]

    def lines(key: str) -> list[Line]:
        return [
            Line(name=node, points=points(node, key), colour=colour(number))
            for number, node in enumerate(history.nodes)
        ]

    axes = {
        "temperature": Axes(x_name="minutes", y_name="°C", from_zero=False),
        "power": Axes(x_name="minutes", y_name="W"),
    }
    return [
        chart("temperature", "Temperature of the cards", "The hottest card of each node.",
              charts.line_chart("temperature", lines("celsius"), axes["temperature"], marks)),
        chart("power", "Power of the cards", "All cards of each node together.",
              charts.line_chart("power", lines("watts"), axes["power"], marks)),
    ]  # fmt: skip


def per_node(
    history: History, figure: Callable[[Event], dict[str, float]], clock: Callable[[float], float] | None
) -> list[Line]:
    """A line for each node, 0 where it was away; over steps, or over minutes where there is a clock."""
    found: list[tuple[float, dict[str, float]]] = []
    ended = history.began
    for step in history.steps:
        began = step["time"] - step["step_s"]
        if clock and began - ended > max(2.0, step["step_s"]):  # nobody trained then
            found += [(clock(ended), {}), (clock(began), {})]
        found.append((clock(step["time"]) if clock else float(step["step"]), figure(step)))
        ended = step["time"]
    return [
        Line(name=node, points=[(x, by.get(node, 0.0)) for x, by in found], colour=colour(number))
        for number, node in enumerate(history.nodes)
    ]


def tokens_by_node(step: Event) -> dict[str, float]:
    rows = by_node(step, "rows")
    whole = max(1.0, sum(rows.values()))
    return {
        node: float(step["tokens"]) * share / whole / max(1e-9, float(step["step_s"])) for node, share in rows.items()
    }


def waiting_by_node(step: Event) -> dict[str, float]:
    longest: dict[str, float] = {}
    for process, facts in step["nodes"].items():
        node = node_of(process)
        part = 100 * float(facts["wait_s"]) / max(1e-9, float(step["step_s"]))
        longest[node] = max(longest.get(node, 0.0), min(100.0, part))
    return longest


def minutes_since(began: float) -> Callable[[float], float]:
    return lambda when: (float(when) - began) / 60


def numbered_news(history: History) -> list[dict[str, Any]]:
    found = []
    number = 0
    for word in history.news:
        if word["time"] < history.began:  # they waited for each other to be up: nothing was on yet
            continue
        if word.get("mark"):
            number += 1
        label = str(number) if word.get("mark") else ""
        found.append({**word, "label": label, "after": duration(word["time"] - history.began)})
    return found


def time_marks(history: History, clock: Callable[[float], float]) -> list[Mark]:
    return [Mark(x=clock(word["time"]), label=word["label"]) for word in numbered_news(history) if word["label"]]


def step_marks(history: History) -> list[Mark]:
    """Where a thing happened between two steps."""
    marks = []
    for word in numbered_news(history):
        before = [step["step"] for step in history.steps if step["time"] <= word["time"]]
        if word["label"] and before:
            marks.append(Mark(x=float(max(before)), label=word["label"]))
    return marks


def node_table(history: History) -> list[dict[str, Any]]:
    if not history.steps:
        return []
    whole = sum(sum(by_node(step, "rows").values()) for step in history.steps)
    table = []
    for number, node in enumerate(history.nodes):
        there = [step for step in history.steps if node in by_node(step, "rows")]
        rows = sum(by_node(step, "rows")[node] for step in there)
        busy = sum(longest_compute(step, node) for step in there)
        readings = history.cards.get(node, [])
        table.append(
            {
                "name": node,
                "colour": colour(number),
                "steps": len(there),
                "part": 100 * rows / max(1.0, whole),
                "speed": rows / busy if busy > 0 else 0.0,
                "waits": sum(waiting_by_node(step).get(node, 0.0) for step in there) / max(1, len(there)),
                "gpu_gb": max((by_node(step, "gpu_gb")[node] for step in there), default=0.0),
                "celsius": max((r["celsius"] for r in readings if r.get("celsius") is not None), default=None),
                "kwh": kwh(readings) if readings else None,
            }
        )
    return table


def longest_compute(step: Event, node: str) -> float:
    return max(float(facts["compute_s"]) for name, facts in step["nodes"].items() if node_of(name) == node)


def kwh(readings: list[Event]) -> float:
    """Power over time, gaps in the readings left out."""
    found = [(float(r["time"]), float(r["watts"])) for r in readings if r.get("watts") is not None]
    joules = 0.0
    for (before, low), (now, high) in pairwise(found):
        if now - before <= LONGEST_GAP_S:
            joules += (now - before) * (low + high) / 2
    return joules / 3.6e6


def plan_against_reality(history: History) -> list[dict[str, Any]]:
    """What was predicted before the start beside what came of it."""
    if not history.plan or not history.steps:
        return []
    settled = history.steps[len(history.steps) // 4 :]
    found = []
    if predicted := history.plan.get("step_s"):
        came = f"{median(s['step_s'] for s in settled):.2f}"
        found.append({"what": "seconds a step", "plan": f"{predicted:.2f}", "came": came})
    for node, share in history.plan.get("shares", {}).items():
        rows = [by_node(step, "rows").get(node, 0.0) for step in settled]
        found.append({"what": f"rows a step, {node}", "plan": f"{share:g}", "came": f"{sum(rows) / len(rows):.1f}"})
    return found


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
