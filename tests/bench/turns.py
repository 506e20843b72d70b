"""Hosts that train together and each of them alone, in turns of some steps.

All runs stay loaded, and who has no turn is stopped: what the machine under them does to one it does to the other as
well. All who are alone compute at the same time, so what hosts take from each other's caches and cores is taken there
too.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from lab.host import Host
from tests.bench.speed import Window, begun
from tests.support import torchrun
from tests.support.torchrun import Training


@dataclass(frozen=True)
class Turn:
    together: Window
    alone: list[Window]
    """Of each host with the rows that it had together; with one where it had none: what it could do belongs to the
    sum."""

    @property
    def of_the_sum(self) -> float:
        return self.together.rows_per_s / sum(own.rows_per_s for own in self.alone)

    @property
    def whole_rows(self) -> float:
        """What would be reached if nothing but whole rows made one wait for the other."""
        rows, rates = self.together.rows, [own.rows_per_s for own in self.alone]
        slowest_s = max(n / rate for n, rate in zip(rows, rates, strict=True))
        return sum(rows) / slowest_s / sum(rates)

    @property
    def own_rates(self) -> list[float]:
        """How fast each computed together, over alone."""
        pairs = zip(self.together.computing, self.alone, strict=True)
        return [together / own.computing[0] for together, own in pairs]


def in_turns(hosts: list[Host], rows: int, *, settle: int, count: int, turns: int) -> list[Turn]:
    together = begun(hosts, rows)
    runs = [together]
    try:
        at = together.wait_for_step(2)
        torchrun.quotas(hosts, on=True)
        at = together.wait_for_step(at + settle)
        own = [max(1, mine) for mine in Window.of(together, rows, together.events("step")[at - settle // 2 :]).rows]
        together.send(signal.SIGSTOP)
        torchrun.quotas(hosts, on=False)
        alone = [begun([host], mine) for host, mine in zip(hosts, own, strict=True)]
        runs += alone
        for run in alone:
            run.wait_for_step(2)
        for run in alone:
            run.send(signal.SIGSTOP)
        torchrun.quotas(hosts, on=True)
        return [shown(Turn(turn([together], [rows], count)[0], turn(alone, own, count))) for _ in range(turns)]
    finally:
        torchrun.quotas(hosts, on=False)
        for run in runs:
            run.stop()


def turn(runs: list[Training], rows: list[int], count: int) -> list[Window]:
    """Of `count` steps of each at the same time, without those that were broken off by a stop before or after."""
    firsts = [len(run.events("step")) + 1 for run in runs]
    for run in runs:
        run.send(signal.SIGCONT)
    for run, first in zip(runs, firsts, strict=True):
        run.wait_for_step(first + count)
    for run in runs:
        run.send(signal.SIGSTOP)
    return [
        Window.of(run, own, run.events("step")[first : first + count])
        for run, own, first in zip(runs, rows, firsts, strict=True)
    ]


def shown(found: Turn) -> Turn:
    rates = " + ".join(f"{own.rows_per_s:.1f}" for own in found.alone)
    computing = " ".join(f"{ratio:.2f}" for ratio in found.own_rates)
    print(
        f"  {found.together.rows_per_s:.1f} rows/s {found.together.rows} of {rates} = {found.of_the_sum:.1%}, "
        f"whole rows allow {found.whole_rows:.1%}; own rates together/alone {computing}",
        flush=True,
    )
    return found
