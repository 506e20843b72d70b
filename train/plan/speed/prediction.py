"""What nodes will do together, as figures and in words: the shares, a step's time, and what would make it quicker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from train.plan.speed.step_time import (
    Estimate,
    Machine,
    Remedy,
    Traffic,
    advice,
    break_even_rows,
    fastest,
    groups,
    others_of,
    remedies_for,
    step_seconds,
    together,
    together_local,
)
from train.plan.values import Settings


@dataclass(frozen=True, kw_only=True, slots=True)
class Figures:
    """An estimate, rounded."""

    shares: Mapping[str, int]
    compute_s: float
    sync_s: float
    step_s: float
    rows_per_s: float

    @classmethod
    def of(cls, found: Estimate, **more: Any) -> Self:
        seconds = {"compute_s": found.compute_s, "sync_s": found.sync_s, "step_s": found.step_s}
        rounded = {name: round(value, 4) for name, value in seconds.items()}
        return cls(shares=found.shares, **rounded, rows_per_s=round(found.rows_per_s, 3), **more)


@dataclass(frozen=True, kw_only=True, slots=True)
class RemedyFigures(Figures):
    settings: Settings
    enough: bool
    costs: str
    sync_part: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """What nodes will do together."""

    wire: str
    together: Figures
    best: Figures
    """The fastest group of them."""
    over_even_split: float = 1.0
    slower_with: Sequence[str] = ()
    """The nodes that are not in that group."""
    sync_part: float = 0.0
    ways: Sequence[RemedyFigures] = ()
    """What would make the all-reduce a smaller part, in the order in which to try it."""
    sentences: Sequence[str] = ()
    """What a node does to the run, where it does not plainly help."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MachineGain(Machine):
    """What a machine adds to the others."""

    share: int
    gain: float
    break_even_rows: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MachinesPrediction(Prediction):
    """What nodes will do together that share nothing but the rows of a step."""

    rows_per_step: int
    gradient_bytes: int
    of_the_sum: float
    over_fastest_alone: float
    nodes: Sequence[MachineGain]
    groups: Sequence[Figures]


def _figures(remedy: Remedy) -> RemedyFigures:
    estimate = remedy.estimate
    part = round(estimate.sync_part, 4)
    return RemedyFigures.of(
        estimate, settings=remedy.settings, enough=remedy.enough, costs=remedy.costs, sync_part=part
    )


def predict(
    machines: Sequence[Machine], rows: int, traffic: Traffic, *, local: bool = False, dealt: bool = False
) -> MachinesPrediction:
    """`local`: as they would train with local steps; `dealt`: with the samples of last rows dealt out."""
    size, how = traffic.bytes, {"dealt": dealt}

    def view(some: Sequence[Machine]) -> Estimate:
        return together_local(some, rows, traffic, **how)[0] if local else together(some, rows, size, **how)

    def gain_of(machine: Machine) -> MachineGain:
        others = others_of(machine, machines, found.shares)
        gained = view([*others, machine]).rows_per_s / view(others).rows_per_s if others else 1.0
        pays = None if local else break_even_rows(machine, others, rows, size, **how) if others else 1
        share = whole.shares[machine.name]
        return MachineGain(**asdict(machine), share=share, gain=round(gained, 3), break_even_rows=pays)

    whole, found = view(machines), fastest(view(some) for some in groups(machines))
    alone = max(together([m], rows, 0).rows_per_s for m in machines)
    even = [len(part) for part in (range(rows)[i :: len(machines)] for i in range(len(machines)))]
    even_s = step_seconds(machines, even) + whole.sync_s
    return MachinesPrediction(
        wire=traffic.wire,
        rows_per_step=rows,
        gradient_bytes=size,
        together=Figures.of(whole),
        of_the_sum=round(whole.rows_per_s / sum(m.rows_per_s for m in machines), 3),
        over_even_split=round(even_s / whole.step_s, 3),
        over_fastest_alone=round(whole.rows_per_s / alone, 3),
        nodes=[gain_of(m) for m in machines],
        groups=[Figures.of(view(some)) for some in groups(machines)],
        best=Figures.of(found),
        slower_with=[machine.name for machine in machines if machine.name not in found.shares],
        sync_part=round(whole.sync_part, 4),
        ways=[] if local else [_figures(remedy) for remedy in remedies_for(machines, rows, traffic, **how)],
        sentences=[] if local else [text for m in machines if (text := advice(m, machines, rows, traffic, **how))],
    )


def as_text(found: MachinesPrediction) -> list[str]:
    whole, best = found.together, found.best
    lines = [f"{'node':14}{'rows/s':>9}{'share':>7}{'Mbit/s':>9}   with it"]
    for node in found.nodes:
        word = "makes the run slower" if node.name in found.slower_with else ""
        lines.append(
            f"{node.name:14}{node.rows_per_s:>9.3g}{node.share:>7}{node.link_mbit:>9.0f}"
            f"   {node.gain:.2f}×  {word}".rstrip()
        )
    lines.append(
        f"together {whole.rows_per_s:.3g} rows/s = {found.of_the_sum:.0%} of the sum · "
        f"{found.over_even_split:.2f}× an even split · {found.over_fastest_alone:.2f}× the fastest alone"
    )
    lines.append(f"a step of {found.rows_per_step} rows: {whole.step_s:.3g} s, of it {whole.sync_s:.2g} s all-reduce")
    if set(best.shares) != set(whole.shares):
        lines.append(f"faster: {', '.join(best.shares)} alone, {best.rows_per_s:.3g} rows/s")
    return [*lines, *found.sentences, *remedies_as_text(found)]


def remedies_as_text(found: Prediction, flag: str = "") -> list[str]:
    if not found.ways:
        return []
    lines = [f"the all-reduce takes {found.sync_part:.0%} of a step; instead, in this order:"]
    for way in found.ways:
        (name, value), *_ = way.settings.items()
        figures = f"{way.step_s:.2f} s a step, {way.rows_per_s:.2f} rows/s, {way.sync_part:.0%} all-reduce"
        lines.append(f"  {f'{flag}{name}={value}':<32} {figures} ({way.costs})")
    return lines


def slows_the_run(found: Prediction | None) -> list[str]:
    """Nodes without which a step would be quicker, with both figures."""
    if not found or found.best.rows_per_s < 1.02 * found.together.rows_per_s:
        return []
    rest = ",".join(found.best.shares)
    whole, best = found.together.step_s, found.best.step_s
    figures = f"{whole:.2f} s a step with it, {best:.2f} s on {rest.replace(',', ', ')} alone: --nodes {rest}"
    return [f"{', '.join(found.slower_with)} slows the run: {figures}"]
