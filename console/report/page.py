"""One HTML file that needs no other: a run as a person wants to see it the next morning."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import jinja2

from console.command_line.commands_as_typed import as_typed
from console.report import in_pieces, preference, rewards, trials
from console.report.energy import energy
from console.report.machines import computes_on, node_table
from console.report.read_run import History
from console.report.request import command, settings
from console.report.run_charts import by_data, first_charts, further_charts, loss_of
from console.report.what_happened import numbered
from console.report.where_time_goes import COLOURS as PART_COLOURS
from console.report.where_time_goes import part_advice, part_charts, part_table
from console.text_layout import counted, duration
from train.files import write_atomic
from train.runlog import scores
from train.runlog.events import metric_words
from train.runlog.pipe_in_words import parts_of
from train.runlog.state import Event, by_node

TEMPLATE = Path(__file__).parents[2] / "templates"


def environment() -> jinja2.Environment:
    """The templates' environment of the report and of the live page, which have the same templates."""
    templates = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATE), autoescape=True, undefined=jinja2.StrictUndefined, auto_reload=False
    )
    templates.filters["as_typed"] = as_typed
    return templates


def write_page(history: History, file: Path) -> Path:
    text = environment().get_template("report.html.j2").render(**view(history))
    write_atomic(file, text.encode(errors="replace"))  # half a character, as JSON may have one
    return file


def view(history: History) -> dict[str, object]:
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
        "tasks": task_table(history.scores),
    }


def task_table(facts: scores.Facts) -> dict[str, object]:
    rows = scores.shown(facts["rows"]) if facts else []
    if not rows:
        return {}
    return {"heads": scores.heads(rows), "rows": [scores.cells(row) for row in rows], "about": scores.about(facts)}


def live_view(history: History) -> dict[str, object]:
    """What the live page draws again and again."""
    news = [{**word, "after": duration(word["after_s"])} for word in numbered(history)]
    return {
        "history": history,
        "trains": not in_pieces.is_one(history),
        "pieces": in_pieces.table(history),
        "trials": trials.view(history.trials, history.total_steps) if history.trials else None,
        "loss": [chart for chart in first_charts(history) if chart["svg"]],
        "parts": part_charts(history),
        "part_table": (table := part_table(history)),
        "part_names": [*PART_COLOURS],
        "part_advice": part_advice(table),
        "repeat": command(history.launch),
        "settings": shaped_by(history),
        "tokens": f"{sum(step['tokens'] for step in history.steps):,}",
        "news": [word for word in news if not word.get("quiet")],
        "quiet_news": [word for word in news if word.get("quiet")],
        "samples": written(history),
        "pictures": history.launch.get("all", {}).get("recipe") == "images",
        "decisions": history.starts[-1]["decisions"],
        "reasons": history.starts[-1].get("reasons", []),
    }


def written(history: History) -> list[Event]:
    """What the model wrote: one text at a few evaluations, and all of them at the last."""
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
    if history.trials:
        over = sum(one.state != "running" for one in history.trials)
        machines = counted(len({one.node for one in history.trials}), "machine")
        return f"{over} of {history.total_steps} trials on {machines} in {duration(history.seconds)}"
    if in_pieces.is_one(history):
        return in_pieces.headline(history)
    steps = f"{history.steps[-1]['step']} of {history.total_steps} steps" if history.steps else "no step was finished"
    return f"{steps} on {counted(len(history.nodes), 'machine')} in {duration(history.seconds)}"


def about(history: History) -> list[tuple[str, str]]:
    """Model, data, machines, time, settings."""
    cards = {node: computes_on(history, node) for node in history.nodes}
    machines = [f"{node} ({card})" if card else node for node, card in cards.items()]
    asked = " · ".join(f"{name} {value}" for name, value in shaped_by(history))
    began, ended = (time.localtime(at) for at in (history.began, history.began + history.seconds))
    end = time.strftime("%H:%M" if began[:3] == ended[:3] else "%d %B, %H:%M", ended)
    when = f"{time.strftime('%d %B %Y, %H:%M', began)} to {end} ({time.strftime('%Z', began)})"
    known = [*model_and_data(history.launch), ("machines", ", ".join(machines)), ("time", when), ("settings", asked)]
    return [pair for pair in known if pair[1]]


def shaped_by(history: History) -> list[tuple[str, str]]:
    return in_pieces.settings(history) if in_pieces.is_one(history) else settings(history.launch)


def model_and_data(launch: Mapping[str, Any]) -> list[tuple[str, str]]:
    model, rows = launch.get("model", {}), str(launch.get("rows", ""))
    data = launch.get("given", {}).get("dataset") or rows.rpartition("-")[0]
    name = " · ".join(dict.fromkeys(filter(None, (model.get("name"), model.get("hub")))))
    return [pair for pair in (("model", name), ("data", Path(str(data)).name)) if pair[1]]


def figures(history: History) -> list[tuple[str, str, str]]:
    """The four that a person looks for first, each with what must be said beside it."""
    if history.trials:
        return trials.figures(history.trials)
    if in_pieces.is_one(history):
        return in_pieces.figures(history)
    if not history.steps:
        return []
    return [worth(history), held_out(history), energy(history), lost_and_back(history)]


def lost_and_back(history: History) -> tuple[str, str, str]:
    """How many machines left, each as often as it did, and came back; a machine that is new is not back."""
    lost, paused, back = 0, 0, 0
    away: set[str] = set()
    for word in numbered(history):
        names = set(word.get("names", ()))
        if word["kind"] == "lost":
            lost, paused = lost + len(names) * (not word["aside"]), paused + len(names) * word["aside"]
            away |= names
        else:
            back, away = back + len(away & names), away - names
    left = lost + paused
    again = f"{back} back" if back else "not back"
    if left and back == left:
        again = {1: "back", 2: "both back"}.get(left, "all back")
    words = [*([f"{lost} lost"] if lost else []), *([f"{paused} paused"] if paused else []), again]
    twice = f"{history.repeated or 'no'} step{'s' * (history.repeated > 1)} trained twice"
    whole = len(history.steps) == history.steps[-1]["step"]
    return "machines", ", ".join(words) if left else "none lost", twice + ", none missing" * whole


def worth(history: History) -> tuple[str, str, str]:
    """The speed against the fastest machine alone, and all of them added up: waiting and the network are the rest."""
    alone = {row["name"]: row["speed"] or 0.0 for row in node_table(history)}
    took = sum(float(step["step_s"]) for step in history.steps)
    rows = sum(sum(by_node(step, "rows").values()) for step in history.steps)
    could = sum(float(step["step_s"]) * sum(alone[node] for node in by_node(step, "rows")) for step in history.steps)
    if took <= 0 or could <= 0:
        return "speed", "not measured", ""
    rate, fastest = rows / took, max(alone, key=lambda node: alone[node])
    beside = f"{100 * rows / could:.0f} % of their speeds added together"
    if len(alone) < 2 or any(parts_of(step) for step in history.steps):
        return "speed", f"{rate:.1f} rows/s", beside if len(alone) > 1 else ""
    times = rate / alone[fastest]
    slower = f"; {fastest} alone is faster: --nodes {fastest}" if times < 1 else ""
    against = f"as {fastest} alone, {rate:.1f} against {alone[fastest]:.1f} rows/s; {beside}"
    return "Was it worth it?", f"{times:.1f} × as fast", against + slower


def held_out(history: History) -> tuple[str, str, str]:
    """The loss of the base and of its adapter where both were asked about the same rows; else what the run measured."""
    if rewards.is_rewarded(history):
        return rewards.outcome(history)
    if preference.is_compared(history):
        return preference.outcome(history)
    before, after = history.asked_loss
    if before is not None and after is not None:
        each = metric_words(by_data(history.of_result)) if history.evals else ""
        return "held-out loss, before → after", change(before, after), f"lower is better; never trained on{each}"
    if not history.evals:
        few = max(1, min(5, len(history.steps) // 4))
        loss = change(mean_loss(history.steps[:few]), mean_loss(history.steps[-few:]))
        return "training loss", loss, "no held-out rows were measured"
    first, last = history.evals[0], history.of_result
    steps = f"step {first['step']} → {last['step']}" if first is not last else f"step {last['step']}"
    beside = metric_words(last.get("metrics", {})).removeprefix(" · ") or "lower is better; never trained on"
    return "held-out loss", change(loss_of(first), loss_of(last)), f"{steps}; {beside}"


def change(first: float | None, last: float | None) -> str:
    words = ["infinite" if loss is None else f"{loss:.3f}" for loss in (first, last)]
    return " → ".join(dict.fromkeys(words))


def mean_loss(steps: list[Event]) -> float | None:
    """The mean loss of these steps; None where one of them is infinite."""
    losses = [loss_of(step) for step in steps]
    finite = [loss for loss in losses if loss is not None]
    return sum(finite) / len(finite) if len(finite) == len(losses) else None


def plan_against_reality(history: History) -> list[dict[str, str]]:
    """What was predicted before the start beside what came of it."""
    if not history.plan or not history.steps:
        return []
    settled = history.steps[len(history.steps) // 4 :]
    table = []
    if step_s := history.plan.get("step_s"):
        came = f"{median(s['step_s'] for s in settled):.2f}"
        table.append({"what": "seconds a step", "plan": f"{step_s:.2f}", "came": came})
    for node, share in history.plan.get("shares", {}).items():
        rows = [by_node(step, "rows").get(node, 0.0) for step in settled]
        table.append({"what": f"rows a step of {node}", "plan": f"{share:g}", "came": f"{sum(rows) / len(rows):.1f}"})
    return table
