"""Stories of a run in pieces: real agents and real lists of pieces on played machines, and faults at any time.

python -m tests.sim.pool_story 7            play one, and show all that happened
python -m tests.sim.pool_story 0 10000      play many, on all processors
python -m tests.sim.pool_story mutant NAME  hunt for a story that finds this fault of tests/sim/pool_mutants.toml
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from tests.sim import mutants
from tests.sim.cluster import Cluster
from tests.sim.faults import KINDS, Fault, drawn
from tests.sim.pool import Pool
from tests.sim.pool_truth import PoolTruth
from tests.sim.search import on_all_processors
from tests.sim.story import FAILS, HANGS, OWN, over_s
from tests.sim.truth import Broken
from train.cluster.fitness import OWN_FAILURES
from train.cluster.timing import TIMING

MUTANTS = "pool_mutants.toml"
BEGIN_S, WITHIN_S = 2.0, 22.0
"""When faults come: a run lasts from some seconds to half a minute."""
PACES = (0.4, 0.7, 1.0, 1.0, 1.6, 3.0)
"""Seconds that machines need for the same piece."""
ENDS_S, AFTER_HANG_S, AFTER_FAILURES_S = 60.0, 120.0, 40.0
"""From the last fault's end to the run's end, beside the time that the work itself takes the slowest machine; more
where a worker hung, which is seen by its silence only, or failed."""
HOLDS = {"sleep", "worker stopped", "worker hangs", "worker cannot be ended", "slow disk", "late words"}
"""Faults in which a piece takes longer than a machine works on it."""


@dataclass(frozen=True)
class PoolStory:
    seed: int
    size: int
    costs: tuple[float, ...]
    faults: tuple[Fault, ...]

    @classmethod
    def of(cls, seed: int) -> PoolStory:
        """One disk at most is full, of two machines not that of the first, which counts as a majority: a run ends where a
        majority of the disks is full. In some stories all hang at once."""
        dice = Random(f"pool {seed}")
        size = dice.choice((2, 3, 3, 3, 3, 3, 4, 5)) if seed % 50 else dice.choice((8, 12, 16))
        many = round(dice.choice((3, 8, 8, 12, 16)) * size)
        costs = tuple(round(0.7 + 0.6 * dice.random(), 2) for _ in range(many))
        faults = drawn(dice, size, dice.randrange(0, 7), WITHIN_S)
        full = next((fault.who for fault in faults if fault.kind == "full disk" and (size > 2 or fault.who)), None)
        faults = [fault for fault in faults if fault.kind != "full disk" or fault.who == full]
        if seed % 25 == 7:
            at = round(6 * dice.random(), 2)
            faults += [Fault("worker hangs", at, 2.0, i, (i + 1) % size) for i in range(size)]
        return cls(seed, size, costs, tuple(faults))

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> PoolStory:
        facts = json.loads(text)
        faults = tuple(Fault(**fault) for fault in facts["faults"])
        return cls(**facts | {"faults": faults, "costs": tuple(facts["costs"])})


@dataclass(frozen=True)
class Outcome:
    broken: str
    """The invariant; empty where all held."""
    journal: list[str]
    pieces: int
    executions: int
    repeated: int
    """Pieces that were done and had been done, or were done at the same time."""
    doubled: int
    ended_s: float
    """From the last fault's end to the run's."""
    played_s: float


class PlayedPool(Cluster):
    def __init__(self, story: PoolStory) -> None:
        super().__init__(story.seed, story.size)
        self.story = story
        self.truth = truth = PoolTruth(self.play, order=self.order, total=len(story.costs), calm_since=1e9)
        truth.can_judge_pace = not HOLDS & {fault.kind for fault in story.faults}
        nodes, self.training = self.training.nodes, Pool(self.play, truth, story.costs)
        self.training.nodes = nodes
        for name in self.order:
            nodes[name].step_s = Random(f"pace {story.seed} {name}").choice(PACES)

    def stirs(self) -> None:
        """Nobody measures here how soon a node has its place."""

    def wake(self, name: str) -> None:
        since = self.machines[name].asleep_since
        super().wake(name)
        if since is not None:
            for worker in self.training.living(name):
                if not worker.life.is_held:
                    worker.life.wake(since)

    def close(self) -> None:
        super().close()
        for node in self.training.nodes.values():
            for worker in node.workers:
                worker.life.end()

    # -- a story -------------------------------------------------------------------------------------------------------

    def begin(self, fault: Fault) -> None:
        self.play.note(f"FAULT  {fault}")
        over = KINDS[fault.kind][0](self, fault, self.order[fault.who], self.order[fault.other])
        self.play.after(over_s(fault) - fault.at, self._over, fault, over if callable(over) else lambda: None)

    def _over(self, fault: Fault, over: Callable[[], object]) -> None:
        self.play.note(f"over   {fault}")
        over()

    def run(self) -> None:
        story, play = self.story, self.play
        for fault in story.faults:
            play.at(BEGIN_S + fault.at, self.begin, fault)
        self.calm_at = BEGIN_S + max((over_s(fault) for fault in story.faults), default=2.0)
        play.run(self.calm_at)
        limit_s = self.limit_s()
        self.until(self.is_over, limit_s, lambda: f"not over {limit_s:.0f} s after the last fault: {self.states()}")
        whole = [name for name in self.order if self.has_finished(name)]
        if not self.lasting_at(self.truth.finished_at, 8.0) and (rest := {*self.truth.finishers} - {*whole}):
            self.truth.breaks(f"{', '.join(rest)} shared the last pieces, and have not ended with all of them")
        for machine in self.machines.values():
            self.truth.check_members(machine)
        self.truth.check_records(whole, {name: self.machines[name].files[self.training.file] for name in whole})

    def is_over(self) -> bool:
        """All are whole, some have finished, and whoever was with them has ended."""
        at = self.truth.finished_at
        names = [name for name in self.order if self.has_finished(name) and self.machines[name].life.began_at < at]
        return bool(at) and all(self.ended.get(name) == 0 for name in names)

    def lasting_at(self, at: float, about_s: float) -> list[Fault]:
        faults = self.story.faults
        return [one for one in faults if BEGIN_S + one.at < at + about_s and BEGIN_S + over_s(one) > at - about_s]

    def has_finished(self, name: str) -> bool:
        return any(worker.code == 0 for worker in self.training.nodes[name].workers)

    def limit_s(self) -> float:
        kinds = {fault.kind for fault in self.story.faults}
        own = Counter(fault.who for fault in self.story.faults for _ in range(OWN_KINDS.get(fault.kind, 0)))
        rests = max(0, max(own.values(), default=0) + 1 - OWN_FAILURES)
        work_s = sum(self.story.costs) * max(node.step_s for node in self.training.nodes.values()) / self.majority()
        limit_s = ENDS_S + work_s + sum(TIMING.again_s[:rests])
        return limit_s + AFTER_HANG_S * bool(kinds & HANGS) + AFTER_FAILURES_S * bool(kinds & FAILS)

    def majority(self) -> int:
        return len(self.order) // 2 + 1

    def outcome(self, broken: str) -> Outcome:
        truth = self.truth
        ended_s = max(0.0, truth.finished_at - self.calm_at)
        repeated = truth.completed - truth.total
        return Outcome(
            broken, self.play.journal, truth.total, truth.executions, repeated, truth.doubled, ended_s, self.play.time
        )


OWN_KINDS = OWN | {"full disk": 3}


def play(story: PoolStory) -> Outcome:
    cluster = PlayedPool(story)
    broken = ""
    try:
        cluster.run()
    except Broken as error:
        broken = str(error)
    finally:
        cluster.close()
    return cluster.outcome(broken)


# -- many --------------------------------------------------------------------------------------------------------------


def told_of(seed: int) -> tuple[int, Outcome]:
    outcome = play(PoolStory.of(seed))
    return seed, dataclasses.replace(outcome, journal=[])


def first_broken(seeds: Iterable[int]) -> tuple[int, str] | None:
    return next(((seed, one.broken) for seed, one in on_all_processors(told_of, seeds) if one.broken), None)


def shrunk(story: PoolStory) -> PoolStory:
    kept = story
    for fault in story.faults:
        fewer = dataclasses.replace(kept, faults=tuple(one for one in kept.faults if one != fault))
        kept = fewer if play(fewer).broken else kept
    return kept


def report(story: PoolStory) -> str:
    small = shrunk(story)
    faults = "\n".join(f"  {fault}" for fault in small.faults)
    return f"""{play(small).broken}

{small.size} machines, {len(small.costs)} pieces
{faults}

again:          python -m tests.sim.pool_story {story.seed}
as a test, a line of tests/sim/pool_kept.jsonl:
{small.to_json()}"""


def one(seed: int) -> int:
    outcome = play(PoolStory.of(seed))
    print("\n".join(outcome.journal))
    print(
        f"\n{outcome.pieces} pieces by {outcome.executions} executions in {outcome.played_s:.0f} s;"
        f" {outcome.broken or 'all invariants hold'}"
    )
    return 1 if outcome.broken else 0


def many(first: int, last: int) -> int:
    began, found = time.monotonic(), []
    for seed, outcome in on_all_processors(told_of, range(first, last)):
        found.append(outcome)
        if outcome.broken:
            print(f"seed {seed}: {report(PoolStory.of(seed))}")
            return 1
    pieces, repeated = sum(each.pieces for each in found), sum(each.repeated for each in found)
    executions, doubled = sum(each.executions for each in found), sum(each.doubled for each in found)
    print(
        f"{last - first} stories ({time.monotonic() - began:.0f} s): {pieces} pieces, none lost, none doubled;"
        f" begun {executions} times, done {repeated} times more than once ({100 * repeated / pieces:.2f} %),"
        f" {doubled} results of a machine that was alone gave way;"
        f" over {max(each.ended_s for each in found):.0f} s after the last fault at most"
    )
    return 0


def hunt(name: str) -> int:
    with mutants.applied(mutants.named(name, MUTANTS), "tests.sim.pool_story") as breaks:
        seed = breaks(range(1000))
    print(f"{name}: {'not found within 1000 seeds' if seed is None else f'seed {seed}'}")
    return 1 if seed is None else 0


def main(words: list[str]) -> int:
    match words:
        case [seed] if seed.isdecimal():
            return one(int(seed))
        case [first, last] if first.isdecimal() and last.isdecimal():
            return many(int(first), int(last))
        case ["mutant", name]:
            return hunt(name)
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
