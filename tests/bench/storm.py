"""How much of what sixteen unequal machines could compute reaches the curve in half an hour with a fault every half
minute, and where the rest goes. Real agents in played time (tests/sim/storm_story.py): a busy machine changes nothing.

    make bench PARTS=storm
    python -m tests.bench.storm 1 --repeats 1
"""

from __future__ import annotations

import statistics
import sys
from collections import Counter
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial

from tests.bench.page import Figures, Found, bench, spread
from tests.sim.storm_story import (
    AGREEING,
    CURVE,
    EACH,
    LASTS,
    NOTICING,
    OFF,
    OUTSIDE,
    SIZE,
    SPEEDS,
    STEP_S,
    STORM_S,
    TWICE,
    Calm,
    StormStory,
)
from tests.support.tables import table as table_of

NAME = "storm"
SEEDS = (1,)
LOSSES = (OFF, NOTICING, AGREEING, TWICE, OUTSIDE)
AIM = 0.977
ROWS = STEP_S * sum(SPEEDS)
"""Of a step."""


def measure(_: None, seed: int) -> Figures:
    """A storm, and the same machines without one. Broken, where something does not hold that must."""
    story = StormStory.of(seed)
    with closing(story.world()) as storm:
        storm.run()
        found = {
            "faults": Counter(fault.kind for fault in story.faults),
            "steps": storm.truth.step - storm.first,
            "repeated": storm.truth.steps_made - storm.truth.step,
            "groups": len(storm.diary.published) - 1,
            "spent": storm.spent(),
        }
    with closing(Calm(replace(story, faults=()))) as calm:
        calm.run()
        return found | {"undisturbed": calm.truth.step - calm.first, "undisturbed_s": calm.lasts_s}


PARTS = {str(seed): partial(measure, seed=seed) for seed in SEEDS}


def kept(run: Figures) -> float:
    """Of the rows that reach the curve undisturbed in as long."""
    return float(run["steps"] / STORM_S / (run["undisturbed"] / run["undisturbed_s"]))


def part(run: Figures, what: str) -> float:
    return float(run["spent"][what] / sum(run["spent"].values()))


def kept_of_what_was_there(run: Figures) -> float:
    return part(run, CURVE) / (1 - part(run, OFF))


def column(run: Figures) -> dict[str, str]:
    return {
        "faults in 30 minutes": str(sum(run["faults"].values())),
        "rows on the curve": f"{run['steps'] * ROWS:.0f}",
        f"of undisturbed, aim > {AIM:.1%}": f"**{kept(run):.1%}**",
        "of what the machines that were there could do": f"{kept_of_what_was_there(run):.1%}",
        **{f"lost: {what}": f"{part(run, what):.1%}" for what in LOSSES},
        "steps made again after a loss": str(run["repeated"]),
        "how often all start again in another group": str(run["groups"]),
        "… seconds of all, each time": f"{seconds_each(run):.1f}",
    }


def table(found: Found) -> list[str]:
    columns = [column(runs[-1]) for runs in found.values()]
    rows = ((what, *(one[what] for one in columns)) for what in columns[0])
    return table_of(("", *(f"seed {seed}" for seed in found)), rows)


def seconds_each(run: Figures) -> float:
    """Of which nobody computed anything that stayed."""
    stood = sum(part(run, what) for what in (NOTICING, AGREEING, TWICE))
    return STORM_S * stood / max(1, int(run["groups"]))


def summary(found: Found) -> tuple[str, str, str]:
    runs = [measured[-1] for measured in found.values()]
    each = [kept(run) for run in runs]
    there = statistics.median(map(kept_of_what_was_there, runs))
    what = f"{SIZE} machines, {EACH * len(LASTS)} faults in 30 minutes: rows on the curve, of undisturbed"
    beside = f"> {AIM:.1%} (nicholi.ai: how it counts is not known); of what was not away {there:.1%}"
    return what, spread(each, "{:.1%}", "storms"), beside


if __name__ == "__main__":
    sys.exit(bench(__doc__, NAME, nullcontext(), PARTS, table))
