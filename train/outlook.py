"""What a group of machines would do together, from their speeds and their links: who makes a run faster, who slower.

Pure arithmetic. A step takes as long as its slowest machine computes, plus adding the gradients up, which is as slow as
the slowest link in the ring. That transfer hides behind nothing is assumed: `ddp` may be a little faster.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

from train.balance import compute_seconds, fastest_split

LINK_EFFICIENCY = 0.94
"""What TCP leaves of a link's nominal speed for data."""
SLOW_S = 0.5
"""An exchange that takes longer is halved by bf16."""
TOO_MANY = 12
"""More nodes than this are not tried in every combination: the weakest is left out, one by one."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    rows_per_s: float
    link_mbit: float


@dataclass(frozen=True, slots=True)
class Outlook:
    """Some machines together."""

    shares: dict[str, int]
    compute_s: float
    sync_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.sync_s

    @property
    def rows_per_s(self) -> float:
        return sum(self.shares.values()) / self.step_s


def sync_seconds(machines: Sequence[Machine], gradient_bytes: int) -> float:
    """A ring: each sends 2 (n - 1) / n of the gradients."""
    count = len(machines)
    slowest = min(machine.link_mbit for machine in machines)
    return 2 * (count - 1) / count * gradient_bytes * 8 / (slowest * 1e6 * LINK_EFFICIENCY)


def together(machines: Sequence[Machine], rows: int, gradient_bytes: int) -> Outlook:
    speeds = [machine.rows_per_s for machine in machines]
    counts = fastest_split(rows, speeds)
    shares = {machine.name: count for machine, count in zip(machines, counts, strict=True)}
    return Outlook(shares, compute_seconds(counts, speeds), sync_seconds(machines, gradient_bytes))


def best(machines: Sequence[Machine], rows: int, gradient_bytes: int) -> Outlook:
    """The group with the most rows per second; of equally good ones the largest, in the order given."""
    groups: list[Sequence[Machine]]
    if len(machines) <= TOO_MANY:
        groups = [some for size in range(len(machines), 0, -1) for some in combinations(machines, size)]
    else:
        worth = {m.name: (min(m.link_mbit, 1000) / 1000, m.rows_per_s) for m in machines}
        order = sorted(machines, key=lambda m: worth[m.name], reverse=True)
        groups = [order[:size] for size in range(len(order), 0, -1)]
    return max((together(some, rows, gradient_bytes) for some in groups), key=lambda outlook: outlook.rows_per_s)


def gains(machines: Sequence[Machine], rows: int, gradient_bytes: int) -> dict[str, float]:
    """By name: rows per second of the best group with this machine, over those without it. Below 1 it makes the run
    slower."""
    chosen = best(machines, rows, gradient_bytes).shares
    found = {}
    for machine in machines:
        others = [other for other in machines if other.name in chosen and other is not machine]
        group = [other for other in machines if other in others or other is machine]
        before = together(others, rows, gradient_bytes).rows_per_s if others else 0
        found[machine.name] = together(group, rows, gradient_bytes).rows_per_s / before if before else 1.0
    return found


def as_json(machines: Sequence[Machine], rows: int, gradient_bytes: int) -> dict[str, Any]:
    whole, found = together(machines, rows, gradient_bytes), best(machines, rows, gradient_bytes)
    gained = gains(machines, rows, gradient_bytes)
    alone = {m.name: together([m], rows, 0).rows_per_s for m in machines}
    even = [len(part) for part in (range(rows)[i :: len(machines)] for i in range(len(machines)))]
    even_s = compute_seconds(even, [m.rows_per_s for m in machines]) + whole.sync_s
    return {
        "rows_per_step": rows,
        "gradient_bytes": gradient_bytes,
        "together": _figures(whole),
        "of_the_sum": round(whole.rows_per_s / sum(m.rows_per_s for m in machines), 3),
        "over_even_split": round(even_s / whole.step_s, 3),
        "over_fastest_alone": round(whole.rows_per_s / max(alone.values()), 3),
        "nodes": [asdict(m) | {"share": whole.shares[m.name], "gain": round(gained[m.name], 3)} for m in machines],
        "best": _figures(found),
        "slower_with": [machine.name for machine in machines if machine.name not in found.shares],
    }


def _figures(outlook: Outlook) -> dict[str, Any]:
    seconds = {"compute_s": outlook.compute_s, "sync_s": outlook.sync_s, "step_s": outlook.step_s}
    figures = {name: round(value, 4) for name, value in seconds.items()}
    return {"shares": outlook.shares, **figures, "rows_per_s": round(outlook.rows_per_s, 3)}


def as_text(facts: Mapping[str, Any]) -> list[str]:
    whole, found = facts["together"], facts["best"]
    lines = [f"{'node':14}{'rows/s':>9}{'share':>7}{'Mbit/s':>9}   with it"]
    for node in facts["nodes"]:
        word = "makes the run slower" if node["name"] in facts["slower_with"] else ""
        lines.append(
            f"{node['name']:14}{node['rows_per_s']:>9.3g}{node['share']:>7}{node['link_mbit']:>9.0f}"
            f"   {node['gain']:.2f}×  {word}".rstrip()
        )
    lines.append(
        f"together {whole['rows_per_s']:.3g} rows/s = {facts['of_the_sum']:.0%} of the sum · "
        f"{facts['over_even_split']:.2f}× an even split · {facts['over_fastest_alone']:.2f}× the fastest alone"
    )
    lines.append(
        f"a step of {facts['rows_per_step']} rows: {whole['step_s']:.3g} s, of it {whole['sync_s']:.2g} s adding up"
    )
    if set(found["shares"]) != set(whole["shares"]):
        names = ", ".join(found["shares"])
        lines.append(f"faster: {names} alone, {found['rows_per_s']:.3g} rows/s")
    return lines
