"""Stories of a run in pieces: real agents and real lists of pieces on played machines, and faults at any time."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.sim.cluster import Cluster
from tests.sim.faults import OWN, Fault, drawn
from tests.sim.pool import Pool
from tests.sim.pool_truth import PoolTruth
from tests.sim.story import Story
from train.cluster.timing import TIMING
from train.pool.piece_thread import FIRST_S

BEGIN_S, WITHIN_S = 2.0, 22.0
"""When faults come: a run lasts from some seconds to half a minute."""
PACES = (0.4, 0.7, 1.0, 1.0, 1.6, 3.0)
"""Seconds that machines need for the same piece."""
ENDS_S, AFTER_HANG_S, AFTER_FAILURES_S = 60.0, 160.0, 40.0
"""From the last fault's end to the run's end, beside the time that the work itself takes the slowest machine; more
where a worker hung, which is seen by its silence only, or failed."""
HOLDS = {"sleep", "worker stopped", "worker hangs", "worker cannot be ended", "slow disk", "late words"}
"""Faults in which a piece takes longer than a machine works on it."""
UNFIT = {"full disk", "worker cannot be ended"}
"""What ends a run where it meets a majority of its machines; of two, the first counts as one."""


@dataclass(frozen=True)
class PoolStory(Story):
    costs: tuple[float, ...]

    KIND = "pool"

    @classmethod
    def of(cls, seed: int) -> PoolStory:
        """One disk at most is full, and of two machines the first stays fit. In some stories all hang at once."""
        dice = Random(f"pool {seed}")
        size = dice.choice((2, 3, 3, 3, 3, 3, 4, 5)) if seed % 50 else dice.choice((8, 12, 16))
        many = round(dice.choice((3, 8, 8, 12, 16)) * size)
        costs = tuple(round(0.7 + 0.6 * dice.random(), 2) for _ in range(many))
        faults = drawn(dice, size, dice.randrange(0, 7), WITHIN_S)
        faults = [fault for fault in faults if size > 2 or fault.who or fault.kind not in UNFIT]
        full = next((fault.who for fault in faults if fault.kind == "full disk"), None)
        faults = [fault for fault in faults if fault.kind != "full disk" or fault.who == full]
        if seed % 25 == 7:
            at = round(6 * dice.random(), 2)
            faults += [Fault("worker hangs", at, 2.0, i, (i + 1) % size) for i in range(size)]
        return cls(seed, size, tuple(faults), costs)

    def world(self) -> PlayedPool:
        return PlayedPool(self)

    def words(self) -> str:
        return f"{super().words()}, {len(self.costs)} pieces"


class PlayedPool(Cluster):
    story: PoolStory

    def __init__(self, story: PoolStory) -> None:
        super().__init__(story)
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

    def run(self) -> None:
        self.play.run(BEGIN_S)
        self.calm_at = self.befall()
        self.play.run(self.calm_at)
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
        since, until = at - about_s - BEGIN_S, at + about_s - BEGIN_S
        return [one for one in self.story.faults if one.at < until and one.over_at > since]

    def has_finished(self, name: str) -> bool:
        return any(worker.code == 0 for worker in self.training.nodes[name].workers)

    def limit_s(self) -> float:
        work_s = sum(self.story.costs) * max(node.step_s for node in self.training.nodes.values()) / self.majority()
        unseen_s = 0.0 if any(self.truth.on_disk.values()) else FIRST_S + TIMING.first_step_s
        return ENDS_S + work_s + unseen_s + self.delays_s(AFTER_HANG_S, AFTER_FAILURES_S, OWN | {"full disk": 3})

    def majority(self) -> int:
        return len(self.order) // 2 + 1

    def counted(self) -> dict[str, float]:
        truth = self.truth
        return super().counted() | {
            "pieces": truth.total,
            "begun": truth.executions,
            "done more than once": truth.completed - truth.total,
            "that gave way to another result": truth.doubled,
            "s after the last fault": max(0.0, truth.finished_at - self.calm_at),
        }
