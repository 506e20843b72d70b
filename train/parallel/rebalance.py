"""How many rows each process takes: speeds from what it computed, and a new plan only where that is worth it.

Everything here is a function of numbers that all ranks have (the step event), so all ranks come to the same plan.

A process's speed is the median of its last rows per second *while computing*. A fixed cost per step makes a process
with few rows look slower than it is, but only until it has more: measured again at its new share it looks faster, and
the plan settles where all need the same time. Large changes are followed after three steps; small ones must last. What
is left to gain by a few rows is taken after a while of quiet, and a plan that was measured to be faster is then taken
again.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from train.plan.speed.row_split import compute_seconds, dealt_seconds, fastest_split

REMEMBERED = 15
"""Steps whose median is a speed."""
ENOUGH = 3
"""Steps that a speed, or a change of it, must be seen for."""
CHANGED = 0.15
"""A speed that moved by more than this has changed; less is taken for noise."""
WORTH = 0.05
"""A plan that saves less than this of a step is not worth a change."""
WORTH_RETURNING = 0.15
"""What a plan that was left lately must have saved when it was in force. Where a speed depends on the number of rows
(full micro-batches), each of two plans can look better from the other, and they would take turns."""
LATELY = 60
STALE = 2.0
"""How many times as long as it once took a plan may take by the speeds of now: full micro-batches explain that much.
Beyond it the machines are not those of then."""
WORTH_AFTER_QUIET = 0.01
"""What a plan must save of a step where none has changed for a while; more where steps differ by more."""
QUIET = 20
"""Steps without a change of plan after which WORTH_AFTER_QUIET counts."""
PROBE_STEPS = 20
"""Steps, at least, between two looks at a process that has no rows."""
PROBE_COST = 0.01
"""Part of the run's time that such looks may take."""


@dataclass
class Meter:
    """One process's speed."""

    guess: float | None = None
    """What is known of it before it has been measured here: from the checkpoint or the settings."""
    seen: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=REMEMBERED))
    """Rows of a step and rows per second."""
    idle: int = 0
    """Steps without rows since it was last measured."""

    def add(self, rows: int, seconds: float, computed: float | None = None) -> bool:
        """Takes a step in; whether the process itself became faster or slower. `computed`: as many rows as its samples
        would fill, where it did not compute its own rows exactly."""
        if rows == 0:
            self.idle += 1
            return False
        if self.idle:  # what was seen long ago says less than one look now
            self.seen.clear()
            self.guess = None
        self.idle = 0
        self.seen.append((rows, (rows if computed is None else computed) / max(seconds, 1e-9)))
        return self._changed()

    def _changed(self) -> bool:
        if len(self.seen) <= ENOUGH:
            return False
        seen = list(self.seen)
        now = statistics.median(speed for _, speed in seen[-2 * ENOUGH + 1 :])
        if abs(now / self._median() - 1) <= CHANGED:
            return False
        self.seen = deque(seen[-ENOUGH:], maxlen=REMEMBERED)
        # With another number of rows another speed is no news of the machine.
        return seen[-ENOUGH - 1][0] == seen[-1][0]

    def _median(self) -> float:
        return statistics.median(speed for _, speed in self.seen)

    @property
    def measured(self) -> bool:
        return len(self.seen) >= ENOUGH or self.guess is not None or self.idle > 0

    @property
    def speed(self) -> float | None:
        """Rows per second. A single noisy step counts for nothing beside what was known before."""
        if not self.seen or (len(self.seen) < ENOUGH and self.guess is not None):
            return self.guess
        return self._median()


@dataclass(frozen=True)
class NewShares:
    """A new plan, in force from the next step on."""

    shares: dict[str, int]
    speeds: dict[str, float]
    reason: str


class Balance:
    """The plan in force and what it rests on, by the names of the processes in rank order."""

    def __init__(
        self,
        names: Sequence[str],
        rows: int,
        *,
        known: Mapping[str, float] | None = None,
        moves: bool = True,
        fixed: Sequence[float] | None = None,
        deals: bool = False,
    ) -> None:
        """`deals`: the last row of each may be dealt out by samples (deal_samples.py)."""
        self.names = list(names)
        self.rows = rows
        self.fixed = fixed
        self.moves = moves and len(names) > 1 and fixed is None
        """Whether shares change; else speeds are measured and kept, and the shares stay."""
        self.deals = deals and self.moves
        known = known or {}
        self.known = dict(known)
        guesses = first_guesses(self.names, known)
        self.meters = {name: Meter(guess) for name, guess in guesses.items()}
        start = [guesses[name] or 1.0 for name in self.names]
        self.counts = fastest_split(rows, start)
        self.shares = [float(n) for n in self.counts] if self.moves else list(fixed or [1.0] * len(names))
        """One weight a process; changes between steps, and alike on all ranks."""
        self.planned = dict(zip(self.names, start, strict=True)) if known else {}
        """The speeds that the plan was made for."""
        self.left: dict[tuple[int, ...], tuple[int, float]] = {}
        """Plans that were left: in which step, and how long the slowest had computed in them."""
        self.took: deque[float] = deque(maxlen=REMEMBERED)
        """How long the slowest computed in each step of the plan in force."""
        self.in_force = 0
        """Steps of the plan in force."""
        self.probing: list[int] | None = None
        """The plan to go back to after a look at an idle process."""
        self.step = 0

    def knowing(self, measured: Mapping[str, float]) -> Balance:
        """A new beginning with speeds measured earlier in this run: they say more than a guess in the settings."""
        known = self.known | dict(measured)
        return Balance(self.names, self.rows, known=known, moves=self.moves, fixed=self.fixed, deals=self.deals)

    @property
    def why(self) -> str:
        """Why the shares to begin with are as they are."""
        if self.fixed is not None:
            return f"shares {':'.join(f'{share:g}' for share in self.fixed)}: as set"
        if not self.moves:
            return "shares even: as set" if len(self.names) > 1 else "shares: one process"
        counts = ":".join(map(str, self.counts))
        if not self.planned:
            return f"shares {counts}: even until speeds are measured"
        speeds = ", ".join(f"{name} {speed:.3g}" for name, speed in self.planned.items())
        return f"shares {counts}: by the speeds known so far, {speeds} rows/s"

    @property
    def speeds(self) -> dict[str, float]:
        """What is known, of processes of earlier parts of the run too: one that returns starts from there."""
        now = {name: meter.speed for name, meter in self.meters.items() if meter.seen}
        return self.known | {name: round(speed, 4) for name, speed in now.items() if speed is not None}

    def learn(self, nodes: Mapping[str, Mapping[str, Any]], *, hold: bool = False) -> NewShares | None:
        """Takes a step's event in; another plan, or None. `hold` keeps the plan as it is for now."""
        self.step += 1
        steps = {name: (nodes[name]["rows"], nodes[name]["compute_s"], nodes[name].get("part")) for name in self.names}
        changed = [name for name in self.names if self.meters[name].add(*steps[name])]
        if changed:
            self.left.clear()
            self._begin_plan()
        if self.probing is None:
            self.took.append(max(nodes[name]["compute_s"] for name in self.names))
            self.in_force += 1
        if not self.moves or hold or not all(meter.measured for meter in self.meters.values()):
            return None
        if self.probing is None:
            return self._better_plan() or self._small_gain() or self._probe()
        self.counts, self.probing = self.probing, None
        return self._better_plan() or self._change("the look at an idle process found no better plan")

    @property
    def dealt_by(self) -> list[float] | None:
        """The speeds by which the samples of last rows are dealt out; None where whole rows stay whole."""
        measured = all(meter.measured for meter in self.meters.values())
        return self._now() if self.deals and measured and self.probing is None else None

    def _now(self) -> list[float]:
        return [self.meters[name].speed or 1.0 for name in self.names]

    def _seconds(self, counts: Sequence[int], speeds: Sequence[float]) -> float:
        """How long the slowest computes."""
        return (dealt_seconds if self.deals else compute_seconds)(counts, speeds)

    def _better_plan(self) -> NewShares | None:
        speeds = self._now()
        counts = fastest_split(self.rows, speeds)
        old_s, new_s = compute_seconds(self.counts, speeds), compute_seconds(counts, speeds)
        now_s = statistics.median(self.took) if self.took else old_s
        when, then_s = self.left.get(tuple(counts), (-LATELY, 0.0))
        returning = self.step - when < LATELY
        if old_s / new_s - 1 < WORTH or (returning and now_s / then_s - 1 < WORTH_RETURNING):
            return None
        return self._take(counts, speeds, self._why(counts, old_s, new_s), now_s)

    def _small_gain(self) -> NewShares | None:
        """A plan that gains a little. Measured times count for more than what speeds say of a plan not tried yet."""
        if self.in_force < QUIET:
            return None
        speeds, now_s = self._now(), statistics.median(self.took)
        worth = max(WORTH_AFTER_QUIET, 2 * statistics.median(abs(took / now_s - 1) for took in self.took))
        tried = {n: then_s for n, (_, then_s) in self.left.items() if self._seconds(n, speeds) < STALE * then_s}
        counts = min(tried, key=lambda plan: tried[plan], default=())
        then_s = tried.get(counts, math.inf)
        if now_s / then_s - 1 < worth:
            counts = tuple(fastest_split(self.rows, speeds))
            then_s = now_s * self._seconds(counts, speeds) / self._seconds(self.counts, speeds)
            if counts in tried or now_s / then_s - 1 < worth:
                return None
        return self._take(list(counts), speeds, self._saved(then_s, now_s), now_s)

    def _take(self, counts: list[int], speeds: list[float], reason: str, now_s: float) -> NewShares:
        self.left[tuple(self.counts)] = (self.step, max(now_s, 1e-9))
        self.left.pop(tuple(counts), None)
        self._begin_plan()
        self.counts, self.planned = counts, dict(zip(self.names, speeds, strict=True))
        return self._change(reason)

    def _begin_plan(self) -> None:
        self.took.clear()
        self.in_force = 0

    def _probe(self) -> NewShares | None:
        """Gives one row, for one step, to a process without rows: it may have become faster."""
        speeds = self._now()
        step_s = compute_seconds(self.counts, speeds)
        for rank, name in enumerate(self.names):
            meter, costs_s = self.meters[name], max(0.0, 1 / speeds[rank] - step_s)
            patience: float = ENOUGH  # a guess is no reason to wait for longer
            if meter.seen:
                patience = max(PROBE_STEPS, costs_s / (PROBE_COST * step_s))
            if self.counts[rank] or meter.idle < patience:
                continue
            self.probing = self.counts
            giver = max(range(len(speeds)), key=lambda i: (self.counts[i] / speeds[i], -i))
            self.counts = [n + (i == rank) - (i == giver) for i, n in enumerate(self.counts)]
            return self._change(f"{name} gets one row for one step, to see how fast it is now")
        return None

    def _change(self, reason: str) -> NewShares:
        self.shares = [float(n) for n in self.counts]
        shares = dict(zip(self.names, self.counts, strict=True))
        return NewShares(shares, {name: round(v, 4) for name, v in zip(self.names, self._now(), strict=True)}, reason)

    @staticmethod
    def _saved(new_s: float, old_s: float) -> str:
        return f"a step computes for {new_s:.3g} s instead of {old_s:.3g} s"

    def _why(self, counts: Sequence[int], old_s: float, new_s: float) -> str:
        """Why the plan changes, in words, by the process whose speed moved most since the last plan."""
        moved = {name: (self.meters[name].speed or 1.0) / then for name, then in self.planned.items()}
        name = max(moved, key=lambda n: abs(math.log(moved[n])), default="")
        if not name:
            speeds = ", ".join(f"{n} {v:.3g}" for n, v in zip(self.names, self._now(), strict=True))
            return f"measured: {speeds} rows/s"
        if abs(math.log(moved[name])) < WORTH:
            return self._saved(new_s, old_s)
        rank = self.names.index(name)
        verb = "slowed" if moved[name] < 1 else "sped up"
        then, now = self.planned[name], self.planned[name] * moved[name]
        rows = f"{self.counts[rank]} → {counts[rank]} of {self.rows} rows"
        return f"{name} {verb} from {then:.3g} to {now:.3g} rows/s: {rows}"


def first_guesses(names: Sequence[str], known: Mapping[str, float]) -> dict[str, float | None]:
    """Speeds by name; a process without one is taken for the mean of its node's, and a new node for the slowest of all:
    if it is faster, little is lost in the three steps that it takes to find out. None for all where nothing is
    known."""
    guesses: dict[str, float | None] = {}
    for name in names:
        node = name.split(":")[0]
        of_node = [speed for other, speed in known.items() if other.split(":")[0] == node]
        guesses[name] = known.get(name) or (statistics.mean(of_node) if of_node else min(known.values(), default=None))
    return guesses
