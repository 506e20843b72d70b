"""The results as one table, for docs/inside/proven.md."""

from __future__ import annotations

from collections import Counter

from tests.gpu.machine import Machine, unlocked
from tests.gpu.results import Result

STATES = ("passed", "failed", "simulated", "skipped")


def table(machine: Machine, results: list[Result], date: str) -> list[str]:
    where = machine.name + (f", driver {machine.driver}" if machine.driver else "")
    lines = [f"{where}; {date}; {versions(machine)}.", "", "| line | what | result |", "|---|---|---|"]
    for found in results:
        when = f" ({found['date']})" if found.get("date", date) != date else ""
        took = f" in {found['seconds']:.0f} s" if "seconds" in found else ""
        said = f"**{found['state']}**{took}{when}: {cell(found['sentence'])}"
        lines.append(f"| {found['line']} | {found['about']} | {said} |")
    return [*lines, "", f"{totals(results)}."]


def versions(machine: Machine) -> str:
    odd = unlocked(machine.versions)
    return ", ".join(
        f"{name} {found}{' (not the locked one)' if name in odd else ''}" for name, found in machine.versions.items()
    )


def totals(results: list[Result]) -> str:
    counts = Counter(found["state"] for found in results)
    return ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state]) or "no line was run"


def cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "¦")
