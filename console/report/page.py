"""One HTML file that needs no other: a run as a person wants to see it the next morning."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from console.report.charts import swatch
from console.report.energy import energy, node_kwh
from console.report.history import History
from console.report.news import numbered
from console.report.parts import part_charts
from console.report.series import colour, first_charts, further_charts, waiting_by_node, work_by_node
from console.words import duration
from train.files import write_atomic
from train.plan.speed.row_split import split_rows
from train.runlog.events import metric_words
from train.runlog.stages import parts_of
from train.runlog.state import Event, by_node, node_of

TEMPLATE = Path(__file__).parents[2] / "templates"


def environment() -> jinja2.Environment:
    """The templates' environment of the report and of the live page, which have the same templates."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True, undefined=jinja2.StrictUndefined, auto_reload=False
    )


def write_page(history: History, file: Path) -> Path:
    text = environment().get_template("report.html.j2").render(**view(history))
    write_atomic(file, text.encode())
    return file


def view(history: History) -> dict[str, Any]:
    nodes = node_table(history)
    return live_view(history) | {
        "headline": headline(history),
        "outcome": outcome(history),
        "figures": figures(history),
        "about": about(history),
        "charts": [chart for chart in further_charts(history) if chart["svg"]],
        "nodes": nodes,
        "cards": any(node["gpu_gb"] for node in nodes),
        "plan": plan_against_reality(history),
        "answers": history.answers.get("questions", []),
    }


def live_view(history: History) -> dict[str, Any]:
    """What the live page draws again and again."""
    told = [{**word, "after": duration(word["after_s"])} for word in numbered(history)]
    return {
        "history": history,
        "loss": [chart for chart in first_charts(history) if chart["svg"]],
        "parts": part_charts(history),
        "tokens": f"{sum(step['tokens'] for step in history.steps):,}",
        "news": [word for word in told if not word.get("quiet")],
        "quiet_news": [word for word in told if word.get("quiet")],
        "samples": written(history),
        "pictures": history.launch.get("all", {}).get("recipe") == "images",
        "decisions": history.starts[-1]["decisions"],
        "reasons": history.starts[-1]["reasons"],
    }


def written(history: History) -> list[dict[str, Any]]:
    """From the first evaluation to the last, a few of them: one text, and all of them at the end."""
    events = history.samples
    between = {events[len(events) * part // 4]["step"] for part in range(4)} if events else set()
    shown = [event for event in events[:-1] if event["step"] in between]
    lines = [(event["step"], event["lines"][0]) for event in shown]
    lines += [(event["step"], line) for event in events[-1:] for line in event["lines"]]
    return [{"step": step, **line} for step, line in lines]


def outcome(history: History) -> str:
    if history.ending is None and history.verdict:
        return "done" if history.verdict == "done" else f"failed: {history.why_ended}"
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


def about(history: History) -> list[tuple[str, str]]:
    """Model, data, machines, time."""
    model, rows = history.launch.get("model", {}), str(history.launch.get("rows", ""))
    data = history.launch.get("given", {}).get("dataset") or rows.rpartition("-")[0]
    name = " · ".join(dict.fromkeys(filter(None, (model.get("name"), model.get("hub")))))
    when = time.strftime("%d %B %Y, %H:%M", time.localtime(history.began))
    known = [("model", name), ("data", Path(str(data)).name), ("machines", ", ".join(history.nodes))]
    return [*(pair for pair in known if pair[1]), ("time", when)]


def figures(history: History) -> list[tuple[str, str, str]]:
    """The four that a person looks for first, each with what must be said beside it."""
    if not history.steps:
        return []
    return [held_out(history), lost_and_back(history), energy(history), speed(history)]


def lost_and_back(history: History) -> tuple[str, str, str]:
    """Machines, each as often as it was lost; who comes for the first time is not back."""
    lost, back = 0, 0
    away: set[str] = set()
    for word in numbered(history):
        names = set(word.get("names", ()))
        if word["kind"] == "lost":
            lost, away = lost + len(names), away | names
        else:
            back, away = back + len(away & names), away - names
    twice = f"{history.repeated or 'no'} step{'s' * (history.repeated > 1)} trained twice"
    whole = len(history.steps) == history.steps[-1]["step"]
    return "machines", f"{lost} lost · {back} back" if lost else "none lost", twice + ", none missing" * whole


def speed(history: History) -> tuple[str, str, str]:
    """Against what the machines of each step compute alone, added up: waiting and the network are the rest."""
    alone = {row["name"]: row["speed"] or 0.0 for row in node_table(history)}
    took = sum(float(step["step_s"]) for step in history.steps)
    rows = sum(sum(by_node(step, "rows").values()) for step in history.steps)
    could = sum(float(step["step_s"]) * sum(alone[node] for node in by_node(step, "rows")) for step in history.steps)
    if took <= 0 or could <= 0:
        return "speed", "not measured", ""
    beside = f"{100 * rows / could:.0f} % of the machines' own speeds, added up"
    return "speed", f"{rows / took:.1f} rows/s", beside


def held_out(history: History) -> tuple[str, str, str]:
    """From the base to its adapter where both were asked about the same rows; else what the run itself measured."""
    before, after = history.asked_loss
    if before is not None and after is not None:
        return "held-out loss, before → after", change(before, after), "lower is better; never trained on"
    if not history.evals:
        few = max(1, min(5, len(history.steps) // 4))
        loss = change(mean(history.steps[:few], "loss"), mean(history.steps[-few:], "loss"))
        return "training loss", loss, "no held-out rows were measured"
    first, last = history.evals[0], history.evals[-1]
    steps = f"step {first['step']} → {last['step']}" if first is not last else f"step {last['step']}"
    beside = metric_words(last.get("metrics", {})).removeprefix(" · ") or "before training: ./motley eval"
    return f"held-out loss, {steps}", change(first["loss"], last["loss"]), beside


def change(first: float, last: float) -> str:
    return f"{first:.3f} → {last:.3f}" if first != last else f"{last:.3f}"


def mean(steps: list[Event], key: str) -> float:
    return sum(float(step[key]) for step in steps) / len(steps)


def node_table(history: History) -> list[dict[str, Any]]:
    if not history.steps:
        return []
    rows = [sum(work_by_node(step).get(node, 0.0) for step in history.steps) for node in history.nodes]
    parts = split_rows(100, rows) if sum(rows) else [0] * len(rows)
    return [
        node_row(history, node, taken) | {"colour": swatch(colour(number)), "part": part}
        for number, (node, taken, part) in enumerate(zip(history.nodes, rows, parts, strict=True))
    ]


def node_row(history: History, node: str, rows: float) -> dict[str, Any]:
    """None for what was not measured of it."""
    there = [step for step in history.steps if node in by_node(step, "rows")]
    busy = sum(longest_compute(step, node) for step in there)
    waits = [waiting_by_node(step)[node] for step in there]
    readings = history.cards.get(node, [])
    return {
        "name": node,
        "layers": layers_words(there[-1], node) if there else "",
        "steps": len(there),
        "speed": rows / busy if rows and busy > 0 else None,
        "waits": sum(waits) / len(waits) if waits else None,
        "gpu_gb": max((by_node(step, "gpu_gb")[node] for step in there), default=0.0),
        "celsius": max((r["celsius"] for r in readings if r.get("celsius") is not None), default=None),
        "kwh": node_kwh(history, node),
    }


def layers_words(step: Event, node: str) -> str:
    """The layers of a machine in a pipe, in words, when it was last there."""
    part = parts_of(step).get(node)
    if part is None:
        return ""
    return part.words + (f" of {part.begins}'s rows" if node != part.begins else "")


def longest_compute(step: Event, node: str) -> float:
    return max(float(facts["compute_s"]) for name, facts in step["nodes"].items() if node_of(name) == node)


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
