"""What a group of machines would do together, from their speeds and their links: who makes a run faster, who slower,
and what to change where the network holds it up.

Pure arithmetic. A step takes as long as its slowest machine computes, plus adding the gradients up, which is as slow as
the slowest link in the ring. That transfer hides behind nothing is assumed: `ddp` may be a little faster. `dealt`: the
samples of last rows are dealt out (parallel/deal_samples.py), so that no machine waits for another's last row.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from train.plan.speed.row_split import compute_seconds, dealt_seconds, fastest_split
from train.plan.values import Settings

LINK_EFFICIENCY = 0.92
"""What is left of a link's nominal speed for data, while as much comes as goes: headers, and acknowledgements of what
comes (docs/BENCHMARKS.md, "Exchanging gradients")."""
LOST_TOGETHER = 0.03
"""Of the sum of their speeds, what machines lose that share a step: who is late in it, and rows that come out unequal
(docs/BENCHMARKS.md, "Where each has a whole computer")."""
TOO_MUCH = 0.1
"""Part of a step that the all-reduce may take before something else is proposed."""
TOO_MANY = 6
"""More nodes than this are not tried in every combination: the weakest is dropped, one by one."""
MORE_ROWS = (2, 3, 4, 6, 8)
"""Times as many rows a step that are proposed: beyond, the step itself is another one."""
CABLE_MBIT = 1000.0
FIRST_ROUND = 4
"""Inner steps of the first round of `sync: local`, which shows how long a step and an exchange take."""
MOST_LOCAL_STEPS = 64
"""The most inner steps between two exchanges of `sync: local`; docs/BENCHMARKS.md has what more of them cost in
loss."""
LEAST_ROUNDS = 8
"""How many exchanges a run has at least, as far as its steps allow."""
WIRE_BYTES = {"fp32": 4, "bf16": 2}
SLOW_S = 0.5
"""An exchange that takes longer is halved by bf16."""
DELTA_BYTES = 0.5 + 2 / 64
"""Of a weight's delta, which each sends to all others (train/parallel/delta_exchange.py)."""
ROOM = 1.25
"""How many times as long as deltas travel a round of local steps computes: links and machines vary."""


@dataclass(frozen=True, slots=True)
class Machine:
    name: str
    rows_per_s: float
    """While it computes."""
    link_mbit: float
    """What its link gives while it sends and receives at once."""
    step_s: float = 0.0
    """Seconds of a step that do not depend on its rows."""
    wireless: bool = False

    @property
    def reached(self) -> str:
        if self.wireless:
            return f"over Wi-Fi ({self.link_mbit:.0f} Mbit/s)"
        return f"over {self.link_mbit:.0f} Mbit/s"


@dataclass(frozen=True, slots=True)
class Traffic:
    """What is exchanged in a step."""

    weights: int
    wire: str = "fp32"
    fewer: Mapping[str, int] = field(default_factory=dict)
    """Weights that would be trained with other `lora_targets`."""
    run_steps: int | None = None
    """Steps of the whole run, where that is known."""

    @property
    def bytes(self) -> int:
        return self.weights * WIRE_BYTES[self.wire]


@dataclass(frozen=True, slots=True)
class Estimate:
    """What some machines do together."""

    shares: dict[str, int]
    compute_s: float
    sync_s: float

    @property
    def step_s(self) -> float:
        return self.compute_s + self.sync_s

    @property
    def rows_per_s(self) -> float:
        return sum(self.shares.values()) / self.step_s

    @property
    def sync_part(self) -> float:
        return self.sync_s / self.step_s


def ring_bytes(gradient_bytes: float, nodes: int) -> float:
    """What each sends, and receives: a ring moves 2 (n - 1) / n of the gradients."""
    return 2 * (nodes - 1) / nodes * gradient_bytes


def link_seconds(sent_bytes: float, mbit: float) -> float:
    return sent_bytes * 8 / (mbit * 1e6 * LINK_EFFICIENCY)


def sync_seconds(machines: Sequence[Machine], gradient_bytes: float) -> float:
    slowest = min(machine.link_mbit for machine in machines)
    return link_seconds(ring_bytes(gradient_bytes, len(machines)), slowest)


def wire_for(fp32_s: float, wanted: str = "auto") -> str:
    """The wire that is set; what `auto` becomes follows from the seconds that an exchange takes in fp32: the one rule,
    for the plan's estimate and the run's measurement (train/parallel/gradient_exchange.py)."""
    if wanted != "auto":
        return wanted
    return "bf16" if fp32_s > SLOW_S else "fp32"


def together(machines: Sequence[Machine], rows: int, gradient_bytes: float, *, dealt: bool = False) -> Estimate:
    counts = fastest_split(rows, *speeds_and_fixed(machines))
    shares = {machine.name: count for machine, count in zip(machines, counts, strict=True)}
    compute_s = step_seconds(machines, counts, dealt=dealt)
    return Estimate(shares, compute_s, sync_seconds(machines, gradient_bytes))


def step_seconds(machines: Sequence[Machine], counts: Sequence[int], *, dealt: bool = False) -> float:
    """How long the machines compute a step of so many rows each, from its begin to when the last has ended."""
    seconds = (dealt_seconds if dealt else compute_seconds)(counts, *speeds_and_fixed(machines))
    return seconds / (1 - LOST_TOGETHER) if sum(count > 0 for count in counts) > 1 else seconds


def speeds_and_fixed(machines: Sequence[Machine]) -> tuple[list[float], list[float]]:
    return [machine.rows_per_s for machine in machines], [machine.step_s for machine in machines]


def groups(machines: Sequence[Machine]) -> Iterator[Sequence[Machine]]:
    """The groups of machines worth looking at, large ones first."""
    if len(machines) <= TOO_MANY:
        for size in range(len(machines), 0, -1):
            yield from combinations(machines, size)
        return
    worth = {m.name: (min(m.link_mbit, 1000) / 1000, m.rows_per_s) for m in machines}
    order = sorted(machines, key=lambda m: worth[m.name], reverse=True)
    yield from (order[:size] for size in range(len(order), 1, -1))
    yield from ([machine] for machine in machines)


def best(machines: Sequence[Machine], rows: int, gradient_bytes: float, *, dealt: bool = False) -> Estimate:
    """The group with the most rows per second; of equally good ones the largest, in the order given."""
    return fastest(together(some, rows, gradient_bytes, dealt=dealt) for some in groups(machines))


def fastest(estimates: Iterable[Estimate]) -> Estimate:
    return max(estimates, key=lambda estimate: estimate.rows_per_s)


def gain(
    machine: Machine, others: Sequence[Machine], rows: int, gradient_bytes: float, *, dealt: bool = False
) -> float:
    """Rows per second with this machine over those without it."""
    if not others:
        return 1.0
    before = together(others, rows, gradient_bytes, dealt=dealt).rows_per_s
    return together([*others, machine], rows, gradient_bytes, dealt=dealt).rows_per_s / before


def others_of(machine: Machine, machines: Sequence[Machine], chosen: Mapping[str, int]) -> list[Machine]:
    return [other for other in machines if other.name in chosen and other.name != machine.name]


def break_even_rows(
    machine: Machine, others: Sequence[Machine], rows: int, gradient_bytes: float, *, dealt: bool = False
) -> int | None:
    """Rows per step from which this machine makes the run no slower; None where even 64 times as many are too few.
    Whole rows make the gain jump up and down by a little: a count is named whose next smaller one is too few."""

    def pays(count: int) -> bool:
        return gain(machine, others, count, gradient_bytes, dealt=dealt) >= 1

    most = 64 * rows
    if not pays(most):
        return None
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if pays(middle) else (middle, high)
    return high


# -- sync: local ------------------------------------------------------------------------------------------------------


def most_local_steps(run_steps: int | None) -> int:
    return MOST_LOCAL_STEPS if run_steps is None else max(1, min(MOST_LOCAL_STEPS, run_steps // LEAST_ROUNDS))


def local_steps(compute_s: float, exchange_s: float, run_steps: int | None) -> int:
    """The fewest steps a round during which the deltas of the last one arrive."""
    most = most_local_steps(run_steps)
    if compute_s <= 0:
        return most
    return max(1, min(most, math.ceil(ROOM * exchange_s / compute_s - 1e-9)))


def together_local(
    machines: Sequence[Machine], rows: int, traffic: Traffic, *, dealt: bool = False
) -> tuple[Estimate, int]:
    """The estimate with local steps, and how many of them between two exchanges. What does not arrive while a round
    computes is waited for; so are the deltas of the first round, and those of the last."""
    whole = together(machines, rows, traffic.bytes, dealt=dealt)
    exchange_s = delta_seconds(machines, traffic.weights)
    steps = local_steps(whole.compute_s, exchange_s, traffic.run_steps)
    waited_s = max(0.0, exchange_s / steps - whole.compute_s)
    waited_s += 2 * exchange_s / traffic.run_steps if traffic.run_steps else 0.0
    return replace(whole, sync_s=waited_s), steps


def delta_seconds(machines: Sequence[Machine], weights: int) -> float:
    """How long the deltas of a round travel: each sends its own to all others, around a ring."""
    slowest = min(machine.link_mbit for machine in machines)
    return link_seconds((len(machines) - 1) * DELTA_BYTES * weights, slowest)


def first_round(run_steps: int | None) -> int:
    return min(FIRST_ROUND, most_local_steps(run_steps))


# -- what to do about a slow link -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change that makes the all-reduce a smaller part of the time."""

    settings: Settings
    estimate: Estimate
    costs: str

    @property
    def enough(self) -> bool:
        return self.estimate.sync_part <= TOO_MUCH + 1e-9


def remedies_for(machines: Sequence[Machine], rows: int, traffic: Traffic, *, dealt: bool = False) -> list[Remedy]:
    """The changes in the order in which to try them; none where the all-reduce takes a tenth of a step at most."""

    def view(count: int, exchanged: Traffic) -> Estimate:
        return together(machines, count, exchanged.bytes, dealt=dealt)

    now = view(rows, traffic)
    if len(machines) < 2 or now.sync_part <= TOO_MUCH:
        return []
    larger = [(rows * times, view(rows * times, traffic)) for times in MORE_ROWS]
    count, larger_step = next((pair for pair in larger if pair[1].sync_part <= TOO_MUCH), larger[2])
    remedies = [Remedy({"rows_per_step": count}, larger_step, "fewer, larger steps for the same rows")]
    if traffic.wire == "fp32":
        half = view(rows, replace(traffic, wire="bf16"))
        remedies.append(Remedy({"wire": "bf16"}, half, "gradients rounded before they travel"))
    for targets, weights in traffic.fewer.items():
        small = view(rows, replace(traffic, weights=weights))
        remedies.append(Remedy({"lora_targets": targets}, small, "a smaller adapter"))
    local, steps = together_local(machines, rows, traffic, dealt=dealt)
    costs = f"deltas travel for {steps} step{'s' * (steps > 1)}: no longer the curve of one machine"
    remedies.append(Remedy({"sync": "local"}, local, costs))
    return [remedy for remedy in remedies if remedy.estimate.sync_part < now.sync_part]


# -- in words ---------------------------------------------------------------------------------------------------------


def advice(machine: Machine, machines: Sequence[Machine], rows: int, traffic: Traffic, *, dealt: bool = False) -> str:
    """What this machine does to the run, and what would change that; empty where it plainly helps."""
    chosen = best(machines, rows, traffic.bytes, dealt=dealt).shares
    others = others_of(machine, machines, chosen)
    now = gain(machine, others, rows, traffic.bytes, dealt=dealt)
    cabled = replace(machine, link_mbit=CABLE_MBIT, wireless=False)
    on_cable = gain(cabled, others, rows, traffic.bytes, dealt=dealt)
    if not others or (now >= 1 and (not machine.wireless or on_cable < 1.1 * now)):
        return ""
    text = f"adding {machine.name} {machine.reached} makes it {times(now)}"
    if machine.link_mbit < CABLE_MBIT and on_cable > 1.05 * now:
        text += f"; on a cable {times(on_cable)}"
    if now >= 1:
        return text
    rows_needed = break_even_rows(machine, others, rows, traffic.bytes, dealt=dealt)
    text += f"; it pays from {rows_needed} rows a step" if rows_needed else "; no number of rows makes it pay"
    local = together_local([*others, machine], rows, traffic, dealt=dealt)[0].rows_per_s
    alone = together(others, rows, traffic.bytes, dealt=dealt).rows_per_s
    return text + (f"; with sync=local {times(local / alone)}" if local > alone else "")


def times(factor: float) -> str:
    return f"{factor:.1f}×" if factor >= 0.1 else f"{factor:.2f}×"
