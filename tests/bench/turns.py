"""Hosts that train together and each of them alone, in turns of some steps.

All runs stay loaded, and who has no turn is stopped: what the machine under them does to one it does to the other as
well. All who are alone compute at the same time, so what hosts take from each other's caches and cores is taken there
too.

    make bench PARTS=turns
    python -m tests.bench.turns 24 --repeats 1
    python -m tests.bench.turns 48-preference --repeats 1
"""

from __future__ import annotations

import signal
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from lab.host import Host
from lab.lab import Lab
from tests.bench.page import Figures, Found, bench, every, spread
from tests.bench.speed import EXCHANGE, LATEST, REST, SLOWEST, Window, begun
from tests.support import torchrun
from tests.support.tables import table as table_of
from tests.support.torchrun import Training
from train.parallel.rebalance import QUIET

NAME = "turns"
SPENT = {
    SLOWEST: "the slowest on average computes",
    LATEST: "in each step another may be later",
    EXCHANGE: "exchange that no computing hides",
    REST: "rest: update, report, the next rows",
}
TURNS = 5
SETTLE = int(1.5 * QUIET)
"""Steps until shares are the best; before, a split within 5 % of it may stay."""
PREFERENCE: dict[str, Any] = {
    "recipe": "preference",
    "dataset": str(torchrun.AT / "examples/polite.jsonl"),
    "max_seq_length": 72,
}
"""Its rows are pairs of two short answers: 48 have about as many tokens as 24 rows of text."""


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


def in_turns(
    hosts: list[Host], rows: int, *, settle: int, count: int, turns: int, limited: bool = True, **settings: Any
) -> list[Turn]:
    """`limited`: by the hosts' shares of a core."""
    together = begun(hosts, rows, **settings)
    runs = [together]
    try:
        at = together.wait_for_step(2)
        torchrun.quotas(hosts, on=limited)
        at = together.wait_for_step(at + settle)
        own = [max(1, mine) for mine in Window.of(together, rows, together.events("step")[at - settle // 2 :]).rows]
        together.send(signal.SIGSTOP)
        torchrun.quotas(hosts, on=False)
        alone = [begun([host], mine, **settings) for host, mine in zip(hosts, own, strict=True)]
        runs += alone
        for run in alone:
            run.wait_for_step(2)
        for run in alone:
            run.send(signal.SIGSTOP)
        torchrun.quotas(hosts, on=limited)
        return [shown(Turn(turn([together], [rows], count)[0], turn(alone, own, count))) for _ in range(turns)]
    finally:
        torchrun.quotas(hosts, on=False)
        for run in runs:
            run.stop()


def turn(runs: list[Training], rows: list[int], count: int, skip: int = 1) -> list[Window]:
    """Of `count` steps of each at the same time, without those that were broken off by a stop before or after: of these
    before, `skip` do not count."""
    firsts = [len(run.events("step")) + skip for run in runs]
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


def measure(lab: Lab, rows: int, count: int, **settings: Any) -> Figures:
    """Together, over the three alone at the same time."""
    return figures(in_turns(lab.hosts, rows, settle=SETTLE, count=count, turns=TURNS, **settings))


def figures(found: list[Turn]) -> Figures:
    return {
        "auto": [each.together.rows_per_s for each in found],
        "rows": [each.together.rows for each in found],
        "alone": [[own.rows_per_s for own in each.alone] for each in found],
        "of the sum": [each.of_the_sum for each in found],
        "whole rows": [each.whole_rows for each in found],
        "own rates": [each.own_rates for each in found],
        "spent": [each.together.spent for each in found],
    }


PARTS = {
    "8": partial(measure, rows=8, count=20),
    "24": partial(measure, rows=24, count=12),
    "96": partial(measure, rows=96, count=4),
    "48-preference": partial(measure, rows=48, count=8, **PREFERENCE),
}


TITLES = {
    "8": "8 rows",
    "24": "24 rows",
    "96": "96 rows",
    "48-preference": "48 pairs, `recipe=preference`",
}


def table(found: Found) -> list[str]:
    rows = []
    for part, title in TITLES.items():
        own = zip(*every(found[part], "own rates"), strict=True)
        rates = ", ".join(f"{statistics.median(one):.0%}" for one in own)
        reached, allowed = reached_and_allowed(found[part])
        rows.append((title, shares(found[part]), spread(reached, "{:.0%}", "turns"), f"{allowed:.0%}", rates))
    reach = "of the sum of the three alone at the same time"
    heads = ("a step", "shares", reach, "whole rows alone would allow", "each computes, over alone")
    return [*table_of(heads, rows), "", *where_seconds_go(found, TITLES)]


def shares(runs: list[Figures]) -> str:
    """The usual ones."""
    return statistics.mode(":".join(map(str, own)) for own in every(runs, "rows"))


def reached_and_allowed(runs: list[Figures]) -> tuple[list[float], float]:
    """Of the sum of their speeds: in each turn, and what whole rows leave in the middle one."""
    return every(runs, "of the sum"), statistics.median(every(runs, "whole rows"))


def where_seconds_go(found: Found, titles: Mapping[str, str]) -> list[str]:
    """Of all turns whose figures have it, in per cent of a step."""
    rows = []
    for part, title in titles.items():
        turns = [spent for run in found[part] for spent in run.get("spent", [])]
        ratios = [statistics.median(spent[name] / sum(spent.values()) for spent in turns) for name in SPENT]
        rows.append((title, *(f"{ratio:.1%}" for ratio in ratios), len(turns)))
    return table_of(("a step", *SPENT.values(), "turns"), rows)


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, torchrun.lab_for_training("benchturns"), PARTS, table))
