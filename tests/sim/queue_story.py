"""Stories of a queue: several runs that follow one another on played machines, with faults at any time, and people who
stop, move, remove and add runs. The agents, their keepers and their turns are the real ones; a controller is only there
when somebody changes something."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

from tests.sim.cluster import SETTINGS, Cluster
from tests.sim.faults import Fault, drawn
from tests.sim.played import Life, PlayedSignals, task
from tests.sim.story import Story
from tests.sim.trainer import Group, Trained, Training
from tests.sim.truth import Truth
from train.cluster.membership import majority
from train.cluster.queue_gossip import QueueKeeper
from train.cluster.run_the_queue import take_turns
from train.runlog import paths
from train.runlog.queue_order import End, Entry, Queue, Refused, launch_of, merged

RUNS = ("A", "B", "C", "D")
WITHIN_S = 70.0
"""When faults and people come: the runs last about so long."""
ALL_OVER_S = 900.0
"""Until everything has ended after the last fault is over: a node whose workers failed rests for minutes."""
EDITS = ("stop", "move", "remove", "add")
BROKEN = ("next workers fail", "worker fails", "worker dies", "worker cannot be ended")
"""Faults that a node's own workers have: enough of them end a run, which the base stories play."""


@dataclass(frozen=True)
class Edit:
    at: float
    kind: str
    which: int


@dataclass(frozen=True)
class QueueStory(Story):
    members: tuple[tuple[int, ...], ...]
    """Of each run its machines."""
    lasts: tuple[int, ...]
    """Steps of each."""
    edits: tuple[Edit, ...]
    failing: int = -1
    """The run whose workers cannot work, on any machine."""

    KIND = "queue"
    PARTS: ClassVar[dict[str, type]] = {"faults": Fault, "edits": Edit}
    EASIER = ({"edits": ()}, {"failing": -1})

    @classmethod
    def of(cls, seed: int) -> QueueStory:
        dice = Random(f"queue {seed}")
        size = dice.choice((2, 3, 3, 3, 3, 4, 5))
        every = tuple(range(size))
        members = tuple(
            every if dice.random() < 0.7 else tuple(sorted(dice.sample(every, dice.randrange(1, size + 1))))
            for _ in RUNS
        )
        lasts = tuple(dice.randrange(12, 40) for _ in RUNS)
        faults = tuple(f for f in drawn(dice, size, dice.randrange(1, 9), WITHIN_S) if f.kind not in BROKEN)
        edits = [Edit(round(WITHIN_S * dice.random(), 2), dice.choice(EDITS), dice.randrange(4)) for _ in range(2)]
        failing = dice.choice((-1, -1, -1, 0, 1))
        return cls(seed, size, faults, members, lasts, tuple(edits) if dice.random() < 0.5 else (), failing)

    def world(self) -> PlayedQueue:
        return PlayedQueue(self)


@dataclass(eq=False)
class TruthOfRun(Truth):
    run: str = ""
    cluster: Any = None

    def starts(self, node: Trained) -> None:
        super().starts(node)
        name = node.machine.name
        entry = self.cluster.on_disk(name).of(launch_of(self.run))
        if entry and entry.end:
            self.breaks(f"{name} begins to train {self.run}, of which it knows that it was {entry.end.how}")

    def steps(self, group: Group) -> None:
        super().steps(group)
        names = [one.node.machine.name for one in group.workers.values()]
        if group.step > self.cluster.trainings[self.run].last_step:
            self.breaks(f"{self.run} is trained beyond its last step")
        self.cluster.has_stepped(self.run, names)


class TurnSignals(PlayedSignals):
    """As train.cluster.run_the_queue has them, for played ones."""

    def __init__(self, life: Life, keeper: QueueKeeper) -> None:
        super().__init__(life)
        self.keeper = keeper

    def listen(self, to_stop: Any) -> None:
        def asked(number: int, frame: None) -> None:
            self.keeper.is_asked_to_end = True
            to_stop(number, frame)

        super().listen(asked)

    def time_is_over(self) -> bool:
        return self.keeper.is_to_leave() or self.keeper.is_alone()


class NodesOfRuns(Mapping[str, Trained]):
    """What each machine has of the run whose files are there."""

    def __init__(self, cluster: PlayedQueue) -> None:
        self.cluster = cluster

    def __getitem__(self, name: str) -> Trained:
        return self.cluster.trainings[self.cluster.placed(name)].nodes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.cluster.order)

    def __len__(self) -> int:
        return len(self.cluster.order)


@dataclass(eq=False)
class PlayedQueue(Cluster):
    story: QueueStory

    def __post_init__(self) -> None:
        super().__post_init__()
        self.trainings: dict[str, Training] = {}
        self.stepped: dict[str, float] = {}
        """The newest step of each run."""
        self.removed: set[str] = set()
        self.moved = False
        for i, run in enumerate(RUNS):
            self._prepare(run, self.story.members[i], self.story.lasts[i], fails=self.story.failing == i)
        self.training.nodes = NodesOfRuns(self)  # type: ignore[assignment]
        self.training.end_workers = self.end_workers  # type: ignore[method-assign]
        self.training.power_is_gone = self.power_is_gone  # type: ignore[method-assign]
        for name in self.order:
            self.machines[name].files[SETTINGS.home_folder / name / "placed"] = b"A"

    def _prepare(self, run: str, members: tuple[int, ...], lasts: int, *, fails: bool) -> None:
        dice = Random(f"{self.seed} {run}")
        order = tuple(self.order[i] for i in members)
        truth = TruthOfRun(self.play, order=order, run=run, cluster=self, calm_since=1e9)
        training = self.trainings[run] = Training(self.play, truth)
        training.last_step = lasts
        for name in self.order:
            training.nodes[name] = self.trained(self.machines[name], dice, run)
            training.nodes[name].fails += ["no such layer"] * (500 if fails else 0)

    def end_workers(self, name: str) -> None:
        for training in self.trainings.values():
            Training.end_workers(training, name)

    def power_is_gone(self, name: str) -> None:
        for training in self.trainings.values():
            Training.power_is_gone(training, name)

    def stirs(self) -> None:
        """Nobody measures here how soon a node has its place."""

    # -- the nodes' files --------------------------------------------------------------------------------------------

    def placed(self, name: str) -> str:
        return self.machines[name].files[SETTINGS.home_folder / name / "placed"].decode()

    def _file(self, name: str, file: str) -> Queue:
        with suppress(KeyError, ValueError):
            return Queue.of_json(self.machines[name].files[SETTINGS.home_folder / name / file])
        return Queue()

    def on_disk(self, name: str) -> Queue:
        return self._file(name, paths.QUEUE_LIST).merged(self._file(name, paths.QUEUE_ASKED))

    # -- people ------------------------------------------------------------------------------------------------------

    def entry(self, run: str) -> Entry:
        order = self.trainings[run].truth.order
        nodes = tuple((name, self.machines[name].address) for name in order)
        return Entry(launch=launch_of(run), run=run, nodes=nodes, added=self.play.time)

    def change(self, edit: Any) -> bool:
        """As ./motley does it: what the machines that answer know, changed, and given to all of them."""
        there = [name for name in self.order if self.machines[name].is_awake]
        try:
            queue = edit(merged([Queue(key="secret"), *map(self.on_disk, there)]))
        except Refused as why:
            self.play.note(f"a person is refused: {why}")
            return False
        for name in there:
            machine, file = self.machines[name], SETTINGS.home_folder / name / paths.QUEUE_ASKED
            machine.files[file] = self.on_disk(name).merged(queue).to_json().encode()
            machine.changed[file] = machine.changed.get(file, 0) + 1
            if queue.concerns(name) and name in self.ended:
                del self.ended[name]
                self.start_agent(name)
        return True

    def edit(self, edit: Edit) -> None:
        there = [name for name in self.order if self.machines[name].is_awake]
        waiting = merged(map(self.on_disk, there)).waiting()
        self.play.note(f"EDIT   {edit}: {', '.join(one.run for one in waiting)}")
        if edit.kind == "add":
            if all(self.order[i] in there for i in self.story.members[3]):
                self.change(lambda queue: queue.added(self.entry("D")))
        elif waiting:
            one = waiting[edit.which % len(waiting)]
            if edit.kind == "move":
                self.moved = self.change(lambda queue: queue.moved(one.run, 1 + edit.which % len(waiting)))
            else:
                one = waiting[0] if edit.kind == "stop" else one
                how = {"stop": "stopped", "remove": "removed"}[edit.kind]
                self.removed.add(one.run)
                self.change(lambda queue: queue.ended(one.launch, End(how=how, time=self.play.time)))

    # -- agents ------------------------------------------------------------------------------------------------------

    def _live(self, life: Life) -> None:
        name = life.machine.name
        run = self.placed(name)
        keeper = self.keeper(life, run)
        keeper.outside.signals = TurnSignals(life, keeper)
        training = self.trainings[run]

        def become(entry: Entry) -> None:
            task().wait(0.05 + 0.3 * self.play.dice.random())  # the power may go while the files are written
            life.machine.files[SETTINGS.home_folder / name / "placed"] = entry.run.encode()
            self.play.note(f"{name} puts the files of {entry.run} in place")
            self.play.after(0.0, self._is_another, life)
            task().wait(None)

        def agent() -> int:
            return self.agent(life, keeper, training, run, run).run()

        self._has_ended(life, take_turns(keeper, agent, become))

    def _is_another(self, life: Life) -> None:
        """As by execv."""
        if not life.is_over:
            life.is_over = True
            self.end_workers(life.machine.name)
            life.end()
            self.start_agent(life.machine.name)

    def ask_to_end(self, name: str) -> None:
        """Who only waits for its turn ends at once."""
        life = self.machines[name].life
        if life and not life.is_over and life.to_stop is None:
            life.is_over = True
            life.end()
        super().ask_to_end(name)

    def is_over_for(self, life: Life, status: int) -> bool:
        keeper = life.agent.keeper if life.agent else None
        is_alone = status == 143 and not (keeper.is_asked_to_end or keeper.has_left)  # no agent for ten minutes
        return not self.on_disk(life.machine.name).concerns(life.machine.name) or is_alone or status == 0

    # -- what must hold ----------------------------------------------------------------------------------------------

    def has_stepped(self, run: str, names: list[str]) -> None:
        """A run that another one has followed does not come back, but where people change the order."""
        self.stepped[run] = self.play.time
        if self.moved or self.removed:
            return
        for later in RUNS[RUNS.index(run) + 1 :]:
            if later in self.stepped and majority(self.trainings[later].truth.order, self.trainings[run].truth.order):
                self.trainings[run].truth.breaks(f"{run} is trained on {', '.join(names)} after {later} has begun")

    def run(self) -> None:
        story, play = self.story, self.play
        self.change(lambda queue: queue.added(*map(self.entry, RUNS[:3])))
        play.run(5.0)
        over_at = self.befall()
        for edit in story.edits:
            play.at(5.0 + edit.at, self.edit, edit)
        play.run(1.0 + max(over_at, 5.0 + WITHIN_S))
        self.until(lambda: len(self.ended) == len(self.order), ALL_OVER_S, lambda: f"not all is over: {self.states()}")
        self.change(lambda queue: queue)  # who was off at the end learns of it from whoever changes the queue next
        self._check()

    def counted(self) -> dict[str, float]:
        steps = sum(training.truth.steps_made for training in self.trainings.values())
        return {"steps": steps, "changes": len(self.story.edits)} | super().counted()

    def _check(self) -> None:
        """Each run has one end, the same on all machines that it concerns, and is trained as far as that says."""
        known = {name: self.on_disk(name) for name in self.order}
        whole = merged(known.values())
        for entry in whole.entries:
            run, truth = entry.run, self.trainings[entry.run].truth
            if entry.end is None:
                truth.breaks(f"{run} has no end")
                return
            for name in entry.names:
                own = known[name].of(entry.launch)
                if own is None or own.end is None or own.end.how != entry.end.how:
                    truth.breaks(f"{name} knows another end of {run} than {entry.end.how}")
            failing = self.story.failing == RUNS.index(run)
            expected = {"failed"} if failing else {"done"}
            if entry.end.how not in expected | ({"stopped", "removed"} if run in self.removed else set()):
                truth.breaks(f"{run} was {entry.end.how}: {entry.end.reason}")
            last = self.trainings[run].last_step
            if entry.end.how == "done" and truth.step != last:
                truth.breaks(f"{run} is done at step {truth.step} of {last}")
        if not {entry.run for entry in whole.entries} >= set(RUNS[:3]):
            self.trainings["A"].truth.breaks("a run is lost")

    def states(self) -> str:
        lists = {name: [f"{one.run}:{one.end.how if one.end else '-'}" for one in self.on_disk(name).entries]
                 for name in self.order}  # fmt: skip
        return f"{super().states()}; placed {[self.placed(name) for name in self.order]}; {lists}"
