"""A run whose work comes in pieces, in its report: how far it came, and what each machine did of it."""

from __future__ import annotations

from console.report.read_run import History, recipe_of
from console.text_layout import counted, duration
from train.plan.settings.read_settings import kind_of
from train.runlog.state import Event, node_of

MATTER = {
    "max_new_tokens": "longest answer",
    "temperature": "temperature",
    "answers": "answers to a prompt",
    "tasks": "tasks",
    "limit": "documents of a task",
    "precision": "precision",
    "load_in": "base in",
    "seed": "seed",
}


def is_one(history: History) -> bool:
    return kind_of(recipe_of(history.launch)).IN_PIECES


def headline(history: History) -> str:
    of = f" of {history.total_steps}" if history.total_steps else ""
    by = counted(len(machines(history)), "machine")
    return f"{len(history.pieces)}{of} pieces on {by} in {duration(history.seconds)}"


def settings(history: History) -> list[tuple[str, str]]:
    launched = history.launch.get("all", {})
    return [(words, str(value)) for name, words in MATTER.items() if (value := launched.get(name)) not in (None, "", 0)]


def figures(history: History) -> list[tuple[str, str, str]]:
    if not history.pieces:
        return []
    work_s = sum(float(event["step_s"]) for event in history.pieces)
    could_s = len(machines(history)) * history.seconds
    beside = f"machines were at work {100 * min(1.0, work_s / could_s):.0f} % of the time" if could_s else ""
    lost = sum(len(word.get("names", ())) for word in history.news if word["kind"] == "lost")
    rate = f"{60 * len(history.pieces) / max(history.seconds, 1e-3):.1f} pieces a minute"
    elsewhere = "what was being done there was done elsewhere" if lost else ""
    return [("speed", rate, beside), ("machines", f"{lost} lost" if lost else "none lost", elsewhere)]


def machines(history: History) -> list[str]:
    return list(dict.fromkeys(node_of(str(event["node"])) for event in history.pieces))


def table(history: History) -> list[dict[str, str | int]]:
    """What each machine did."""
    rows: list[dict[str, str | int]] = []
    for name in machines(history):
        pieces: list[Event] = [event for event in history.pieces if node_of(str(event["node"])) == name]
        seconds = sum(float(event["step_s"]) for event in pieces)
        percent = 100 * len(pieces) / len(history.pieces)
        rows.append(
            {"name": name, "pieces": len(pieces), "part": f"{percent:.0f}", "each": f"{seconds / len(pieces):.1f}"}
        )
    return rows
