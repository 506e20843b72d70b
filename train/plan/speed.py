"""How fast the nodes and the way between them are, and what `python -m train plan` makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from train.plan.nodes import Node

COUNTED_ALIKE = ("model", "max_seq_length", "method", "lora_r", "lora_targets", "load_in", "gradient_checkpointing")
"""Settings in which two runs must agree for one's speeds to foretell the other's."""


@dataclass(frozen=True)
class Speeds:
    """What is known of how fast the nodes compute."""

    rows_per_s: dict[str, float] = field(default_factory=dict)
    fixed_s: dict[str, float] = field(default_factory=dict)
    """Of a step, whatever its rows; only where that was measured."""
    why: str = "not measured yet"


def speeds(
    nodes: list[Node], settings: dict[str, Any], calibrated: Mapping[str, Mapping[str, float]] | None = None
) -> Speeds:
    """From the newest run that computed the same, else as `train calibrate` measured it on the node."""
    rates: dict[str, float] = {}
    fixed: dict[str, float] = {}
    sources: list[str] = []
    for node in nodes:
        for entry in node.look["measured"]:
            before = entry["launched"].get("all", {})
            if before and all(before.get(name) == settings.get(name) for name in COUNTED_ALIKE):
                for name, rate in entry["speeds"].items():
                    rates.setdefault(name.partition(":")[0], rate)
                sources.append(entry["run"])
                break
    for name, speed in (calibrated or {}).items():
        if name not in rates:
            rates[name], fixed[name] = speed["rows_per_s"], speed["fixed_s"]
            sources.append("a calibration")
    known = {node.name: rates[node.name] * node.processes for node in nodes if node.name in rates}
    return Speeds(known, fixed, f"measured in {', '.join(dict.fromkeys(sources))}") if known else Speeds()


def link(nodes: list[Node], proof_mbit: float) -> tuple[float, str]:
    """Mbit/s of the slowest way between two nodes, and how that is known."""
    if proof_mbit:
        return proof_mbit, "measured by bootstrap's proof"
    told = {node.name: node.look["way"]["mbit"] for node in nodes if node.look["way"].get("mbit")}
    if not told:
        return 1000.0, "taken for granted: no network card tells its speed"
    slowest = min(told, key=lambda name: told[name])
    return float(told[slowest]), f"as {slowest}'s network card says"


def outlook_words(nodes: list[Node], known: Speeds, settings: Mapping[str, Any], mbit: float) -> list[str]:
    """What `python -m train plan` is asked to foretell the run from. Empty until every node's speed is known."""
    if len(known.rows_per_s) < len(nodes):
        return []
    rates = ",".join(f"{node.name}={known.rows_per_s[node.name]:.4f}" for node in nodes)
    fixed = ",".join(f"{name}={seconds:.4f}" for name, seconds in known.fixed_s.items() if seconds >= 1e-4)
    words = [
        "--speeds",
        rates,
        *(["--fixed", fixed] if fixed else []),
        "--rows-per-step",
        str(settings["rows_per_step"]),
        "--wire",
        settings["wire"],
    ]
    wired = {node.name: node.look["way"]["mbit"] for node in nodes if node.look["way"].get("mbit")}
    wireless = [node.name for node in nodes if node.look["way"].get("wireless")]
    words += ["--wireless", ",".join(wireless)] if wireless else []
    words += ["--sync", settings["sync"]]
    if 0 < len(wired) < len(nodes):  # what was measured is the others' link: Wi-Fi tells no speed of its own
        words += ["--links", ",".join(f"{name}={max(speed, mbit):.0f}" for name, speed in wired.items())]
    return words


def slows_the_run(outlook: Mapping[str, Any]) -> list[str]:
    """Nodes without which a step would be quicker, with both figures."""
    if not outlook or outlook["best"]["rows_per_s"] < 1.02 * outlook["together"]["rows_per_s"]:
        return []
    rest = list(outlook["best"]["shares"])
    slow = ", ".join(outlook["slower_with"])
    figures = (
        f"{outlook['together']['step_s']:.2f} s a step with it, "
        f"{outlook['best']['step_s']:.2f} s on {', '.join(rest)} alone: -e nodes={','.join(rest)}"
    )
    return [f"{slow} slows the run: {figures}"]


def advice(outlook: Mapping[str, Any]) -> list[str]:
    """What train/plan/speedup.py says of each node and of a slow network, ready to be set."""
    if not outlook:
        return []
    said = list(outlook["sentences"])
    if outlook["ways"]:
        said.append(f"adding up takes {outlook['sync_part']:.0%} of a step; instead, in this order:")
    for way in outlook["ways"]:
        wish = " ".join(f"-e {name}={value}" for name, value in way["settings"].items())
        figures = f"{way['step_s']:.2f} s a step, {way['rows_per_s']:.2f} rows/s, {way['sync_part']:.0%} adding up"
        said.append(f"  {wish:<32} {figures} ({way['costs']})")
    return said
