"""A run's machines in its report: what each is, what it did, and how fast it computes alone."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import TypedDict

from console.electricity import number as known_number
from console.report.energy import node_kwh
from console.report.read_run import History
from console.report.run_charts import work_by_node
from console.report.svg_charts import colour, swatch
from console.text_layout import wh_or_kwh
from train.plan.machines.facts import short_name
from train.plan.speed.row_split import split_rows
from train.runlog.pipe_in_words import parts_of
from train.runlog.state import Event, by_node, node_of


def card_words(gpus: Sequence[Mapping[str, str]]) -> str:
    """2 × RTX 3090, 24 GB; empty where nvidia-smi has listed none."""
    words = []
    for gpu in gpus:
        mb = known_number(gpu.get("memory.total"))
        name = short_name(str(gpu.get("name") or ""))
        words.append(name + (f", {mb / 1024:.0f} GB" if mb else "") if name else "graphics card")
    counted = [(len(list(same)), name) for name, same in itertools.groupby(words)]
    return " + ".join(f"{count} × {name}" if count > 1 else name for count, name in counted)


def computes_on(history: History, node: str) -> str:
    """What a node computes on, in words; empty where it did not train yet."""
    used_gb = [gb for step in history.steps[-20:] if (gb := by_node(step, "gpu_gb").get(node)) is not None]
    if not used_gb or max(used_gb) > 0:
        return card_words(history.gpus.get(node, [])) or ("graphics card" if used_gb else "")
    return "processor"


class NodeRow(TypedDict):
    """A machine in the report's table; None for what was not measured of it."""

    name: str
    colour: str
    part: int
    """How many of a hundred rows it trained."""
    card: str
    layers: str
    steps: int
    speed: float | None
    gpu_gb: float
    celsius: float | None
    energy: str | None


def node_table(history: History) -> list[NodeRow]:
    if not history.steps:
        return []
    rows = [sum(work_by_node(step).get(node, 0.0) for step in history.steps) for node in history.nodes]
    parts = split_rows(100, rows) if sum(rows) else [0] * len(rows)
    return [node_row(history, node, taken, part) for node, taken, part in zip(history.nodes, rows, parts, strict=True)]


def node_row(history: History, node: str, rows: float, part: int) -> NodeRow:
    steps = [step for step in history.steps if node in by_node(step, "rows")]
    busy = sum(longest_compute(step, node) for step in steps)
    readings = history.cards.get(node, [])
    return {
        "name": node,
        "colour": swatch(colour(history.nodes.index(node))),
        "part": part,
        "card": computes_on(history, node),
        "layers": layers_words(steps[-1], node) if steps else "",
        "steps": len(steps),
        "speed": rows / busy if rows and busy > 0 else None,
        "gpu_gb": max((by_node(step, "gpu_gb")[node] for step in steps), default=0.0),
        "celsius": max((r["celsius"] for r in readings if r.get("celsius") is not None), default=None),
        "energy": wh_or_kwh(used) if (used := node_kwh(history, node)) is not None else None,
    }


def layers_words(step: Event, node: str) -> str:
    """The layers of a machine in a pipe, in words, when it was last there."""
    part = parts_of(step).get(node)
    if part is None:
        return ""
    return part.words + (f" of {part.begins}'s rows" if node != part.begins else "")


def longest_compute(step: Event, node: str) -> float:
    return max(float(facts["compute_s"]) for name, facts in step["nodes"].items() if node_of(name) == node)
