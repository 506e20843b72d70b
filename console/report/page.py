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
from console.report.story import Event, Story, by_node

TEMPLATE = Path(__file__).parents[2] / "templates"
COLOURS = 6
LONGEST_GAP_S = 60.0


def write_page(story: Story, file: Path) -> Path:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True, undefined=jinja2.StrictUndefined
    )
    text = environment.get_template("report.html.j2").render(**view(story))
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".draft")
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)
    return file


def view(story: Story) -> dict[str, Any]:
    return {
        "story": story,
        "headline": headline(story),
        "outcome": outcome(story),
        "figures": figures(story),
        "charts": [chart for chart in all_charts(story) if chart["svg"]],
        "nodes": node_table(story),
        "cards": bool(story.cards) or any(node["gpu_gb"] for node in node_table(story)),
        "news": [word for word in numbered_news(story) if not word.get("quiet")],
        "quiet_news": [word for word in numbered_news(story) if word.get("quiet")],
        "plan": plan_against_reality(story),
        "answers": story.answers.get("questions", []),
        "decisions": story.starts[-1]["decisions"],
        "reasons": story.starts[-1]["reasons"],
        "when": time.strftime("%d %B %Y, %H:%M", time.localtime(story.began)),
    }


def outcome(story: Story) -> str:
    if story.ending is None:
        return "no end was recorded: it goes on, or all its nodes died"
    return {
        "done": "done",
        "failed": f"failed: {story.ending.get('node', '')}: {story.ending.get('message', '')}",
        "stopped": f"stopped ({story.ending.get('reason', '')})",
    }[story.ending["event"]]


def headline(story: Story) -> str:
    steps = f"{story.steps[-1]['step']} of {story.total_steps} steps" if story.steps else "no step was finished"
    nodes = f"{len(story.nodes)} nodes" if len(story.nodes) != 1 else "one node"
    return f"{steps} on {nodes} in {duration(story.seconds)}"


def figures(story: Story) -> list[tuple[str, str]]:
    """The few numbers that a person looks for first."""
    if not story.steps:
        return []
    steps = story.steps
    few = max(1, min(5, len(steps) // 4))
    told = [("training loss", change(mean(steps[:few], "loss"), mean(steps[-few:], "loss")))]
    if story.evals:
        told.append(("held-out loss", change(story.evals[0]["loss"], story.evals[-1]["loss"])))
    tokens = sum(step["tokens"] for step in steps)
    told.append(("throughput", f"{tokens / max(1e-9, sum(step['step_s'] for step in steps)):,.0f} tokens/s"))
    told.append(("tokens", f"{tokens:,}"))
    if story.repeated:
        told.append(("steps trained twice", str(story.repeated)))
    if energy := sum(kwh(readings) for readings in story.cards.values()):
        told.append(("energy of the cards", f"{energy:.3g} kWh"))
    return told


def change(first: float, last: float) -> str:
    return f"{first:.3f} → {last:.3f}" if first != last else f"{last:.3f}"


def mean(steps: list[Event], key: str) -> float:
    return sum(float(step[key]) for step in steps) / len(steps)


def colour(number: int) -> str:
    return f"var(--n{number % COLOURS + 1})"


def all_charts(story: Story) -> list[dict[str, str]]:
    steps = story.steps
    if not steps:
        return []
    clock = minutes_since(story.began)
    at_step, at_time = step_marks(story), time_marks(story, clock)
    loss = [(float(step["step"]), float(step["loss"])) for step in steps]
    held_out = [(float(event["step"]), float(event["loss"])) for event in story.evals]
    return [
        chart(
            "loss",
            "Loss",
            "Lower is better. Held-out rows were never trained on: if their loss rises while training loss falls, "
            "the model is learning by heart.",
            charts.line_chart(
                "loss",
                [
                    *training_lines(loss),
                    Line(name="held-out", points=held_out, colour=colour(1), dots=True),
                ],
                Axes(x_name="step", y_name="loss", from_zero=False),
                at_step,
            ),
        ),
        chart(
            "throughput",
            "Throughput",
            "Tokens a second, by the node that trained them.",
            charts.stacked_chart(
                "throughput",
                per_node(story, tokens_by_node, clock),
                Axes(x_name="minutes", y_name="tokens/s"),
                at_time,
            ),
        ),
        chart(
            "shares",
            "Shares",
            "Rows of a step that each node took. They follow its speed.",
            charts.stacked_chart(
                "shares",
                per_node(story, lambda step: by_node(step, "rows"), None),
                Axes(x_name="step", y_name="rows"),
                at_step,
            ),
        ),
        chart(
            "waiting",
            "Waiting",
            "Part of each step that a node waited for slower ones. Small and alike means well balanced.",
            charts.line_chart(
                "waiting",
                [
                    Line(name=line.name, points=charts.smoothed(line.points), colour=line.colour)
                    for line in per_node(story, waiting_by_node, None)
                ],
                Axes(x_name="step", y_name="% of the step"),
                at_step,
            ),
        ),
        *card_charts(story, clock, at_time),
    ]


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


def card_charts(story: Story, clock: Callable[[float], float], marks: list[Mark]) -> list[dict[str, str]]:
    def lines(key: str) -> list[Line]:
        return [
            Line(
                name=node,
                points=[(clock(r["time"]), float(r[key])) for r in story.cards.get(node, []) if r.get(key) is not None],
                colour=colour(number),
            )
            for number, node in enumerate(story.nodes)
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
    story: Story, figure: Callable[[Event], dict[str, float]], clock: Callable[[float], float] | None
) -> list[Line]:
    """A line for each node, 0 where it was away; over steps, or over minutes where there is a clock."""
    told: list[tuple[float, dict[str, float]]] = []
    ended = story.began
    for step in story.steps:
        began = step["time"] - step["step_s"]
        if clock and began - ended > max(2.0, step["step_s"]):  # nobody trained then
            told += [(clock(ended), {}), (clock(began), {})]
        told.append((clock(step["time"]) if clock else float(step["step"]), figure(step)))
        ended = step["time"]
    return [
        Line(name=node, points=[(x, by.get(node, 0.0)) for x, by in told], colour=colour(number))
        for number, node in enumerate(story.nodes)
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
        node = process.partition(":")[0]
        part = 100 * float(facts["wait_s"]) / max(1e-9, float(step["step_s"]))
        longest[node] = max(longest.get(node, 0.0), min(100.0, part))
    return longest


def minutes_since(began: float) -> Callable[[float], float]:
    return lambda when: (float(when) - began) / 60


def numbered_news(story: Story) -> list[dict[str, Any]]:
    told = []
    number = 0
    for word in story.news:
        if word["time"] < story.began:  # they waited for each other to be up: nothing was on yet
            continue
        if word.get("mark"):
            number += 1
        label = str(number) if word.get("mark") else ""
        told.append({**word, "label": label, "after": duration(word["time"] - story.began)})
    return told


def time_marks(story: Story, clock: Callable[[float], float]) -> list[Mark]:
    return [Mark(x=clock(word["time"]), label=word["label"]) for word in numbered_news(story) if word["label"]]


def step_marks(story: Story) -> list[Mark]:
    """Where a thing happened between two steps."""
    marks = []
    for word in numbered_news(story):
        before = [step["step"] for step in story.steps if step["time"] <= word["time"]]
        if word["label"] and before:
            marks.append(Mark(x=float(max(before)), label=word["label"]))
    return marks


def node_table(story: Story) -> list[dict[str, Any]]:
    if not story.steps:
        return []
    whole = sum(sum(by_node(step, "rows").values()) for step in story.steps)
    table = []
    for number, node in enumerate(story.nodes):
        there = [step for step in story.steps if node in by_node(step, "rows")]
        rows = sum(by_node(step, "rows")[node] for step in there)
        busy = sum(longest_compute(step, node) for step in there)
        readings = story.cards.get(node, [])
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
    return max(float(facts["compute_s"]) for name, facts in step["nodes"].items() if name.partition(":")[0] == node)


def kwh(readings: list[Event]) -> float:
    """Power over time, gaps in the readings left out."""
    told = [(float(r["time"]), float(r["watts"])) for r in readings if r.get("watts") is not None]
    joules = 0.0
    for (before, low), (now, high) in pairwise(told):
        if now - before <= LONGEST_GAP_S:
            joules += (now - before) * (low + high) / 2
    return joules / 3.6e6


def plan_against_reality(story: Story) -> list[dict[str, Any]]:
    """What was predicted before the start beside what came of it."""
    if not story.plan or not story.steps:
        return []
    settled = story.steps[len(story.steps) // 4 :]
    told = []
    if predicted := story.plan.get("step_s"):
        told.append(
            {
                "what": "seconds a step",
                "plan": f"{predicted:.2f}",
                "came": f"{median(s['step_s'] for s in settled):.2f}",
            }
        )
    for node, share in story.plan.get("shares", {}).items():
        rows = [by_node(step, "rows").get(node, 0.0) for step in settled]
        told.append({"what": f"rows a step, {node}", "plan": f"{share:g}", "came": f"{sum(rows) / len(rows):.1f}"})
    return told


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
