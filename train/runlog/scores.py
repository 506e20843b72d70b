"""The scores of tasks before and after (recipe=evaluate), as a run's results have them, and as a table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FOLDER, FILE = "scores", "tasks.json"
"""results/RUN/scores/tasks.json"""
LARGEST = 4 << 20
"""Bytes that are read of one: it comes from a node."""
Facts = dict[str, Any]
ARROWS = {True: " ↑", False: " ↓", None: ""}
"""Which way is better."""
TITLE = "## Tasks, before and after"
MEANS = "forgotten, learned: by more than 1.96 standard errors of the change; all else may be chance"


def read(results: Path) -> Facts | None:
    """The scores below a run's results; None where there are none, or none that can be read."""
    file = results / FOLDER / FILE
    try:
        if file.stat().st_size > LARGEST:
            return None
        facts: Facts = json.loads(file.read_text())
        return facts if all(set(cells(row)) for row in facts["rows"]) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def of_run(results: Path, run: str) -> Facts | None:
    """What a run was asked last, of all that was fetched; a run of tasks is its own."""
    files = sorted(results.glob(f"*/{FOLDER}/{FILE}"), key=lambda file: file.stat().st_mtime, reverse=True)
    for file in files:
        facts = read(file.parents[1])
        if facts and run in (facts.get("of_run"), facts.get("run")):
            return facts
    return None


def in_card(text: str, facts: Facts) -> str:
    """A model card with these scores, in place of earlier ones."""
    before, _, rest = text.partition(f"{TITLE}\n")
    behind = rest.partition("\n## ")
    after = f"## {behind[2]}" if behind[1] else ""
    lines = "\n".join(markdown(facts))
    if rest:
        return f"{before}{lines}\n{after}"
    head, mark, tail = text.partition("\n## ")
    return f"{head}\n{lines}\n## {tail}" if mark else f"{text.rstrip()}\n\n{lines}"


def shown(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """What a table has room for: a group stands for its parts."""
    groups = {row["task"] for row in rows}
    return [row for row in rows if row.get("group") not in groups]


def cells(row: Mapping[str, Any]) -> list[str]:
    """Task, metric, and what was scored; of a base alone its score."""
    metric = f"{row['metric']}{ARROWS.get(row.get('higher_is_better'), '')}"
    row_cells = [str(row["task"]), metric, with_error(row["base"], row["base_error"])]
    if "adapter" not in row:
        return row_cells
    change = with_error(row["change"], row["change_error"], sign="+")
    return [*row_cells, with_error(row["adapter"], row["adapter_error"]), change, str(row["verdict"])]


def heads(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The titles of the columns."""
    both = ["after", "change", ""] if any("adapter" in row for row in rows) else []
    return ["task", "metric", "before" if both else "score", *both]


def with_error(value: float | None, error: float | None, sign: str = "") -> str:
    if value is None:
        return "–"
    places = 4 if abs(value) < 10 else 1
    return f"{value:{sign}.{places}f}" + (f" ± {error:.{places}f}" if error is not None else "")


def forgotten(facts: Facts) -> list[str]:
    """Tasks that are worse than before beyond chance."""
    return list(dict.fromkeys(str(row["task"]) for row in shown(facts["rows"]) if row.get("verdict") == "forgotten"))


def table(facts: Facts) -> list[str]:
    """Lines for a terminal."""
    rows = shown(facts["rows"])
    lines = [heads(rows), *(cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    hidden = len(facts["rows"]) - len(rows)
    return [*text, "", *([f"{hidden} more, of parts of these: {FOLDER}/{FILE}"] if hidden else []), *about(facts)]


def about(facts: Facts) -> list[str]:
    """What the numbers mean."""
    cut = f", the first {facts['documents']} documents of each" if facts.get("documents") else ""
    has_change = any("adapter" in row for row in facts["rows"])
    return [*([MEANS] if has_change else []), f"lm-evaluation-harness {facts.get('harness', '?')}{cut}"]


def markdown(facts: Facts) -> list[str]:
    """Lines for a model card."""
    rows = shown(facts["rows"])
    head = heads(rows)
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(cells(row))} |" for row in rows]
    return [f"{TITLE}\n", *lines, "", "; ".join(about(facts)) + ".", ""]
