"""What must hold whatever happens. It sees all machines at once, which no agent does."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.sim.played import Machine, Play
from train.cluster.node_status import Generation
from train.cluster.timing import TIMING
from train.plan.placement.pipeline_split import Room

if TYPE_CHECKING:
    from tests.sim.trainer import Group, Trained, Worker


PLACE_S = 3.9
"""Until a node that is whole, and has loaded, is a member, where nothing else happens."""


class Broken(BaseException):  # no agent may catch it
    """What must hold does not."""


@dataclass
class Stay:
    """Of a node among those who train, as the hosts have published it."""

    since: float | None = None
    """None: from the first generation on."""
    is_in: bool = False
    short: int = 0
    """How often in a row it was lost soon after it had joined."""
    seen: int = 0
    """The same, as far as today's host has surely seen all of it."""
    is_seen: bool = False
    lost_at: float = 0.0

    def joins(self, at: float | None, is_seen: bool) -> None:
        self.is_in, self.since, self.is_seen = True, at, is_seen

    def is_lost(self, at: float) -> None:
        stayed_s = 1e9 if self.since is None else at - self.since
        self.is_in, self.lost_at = False, at
        self.short = self.short + 1 if stayed_s < TIMING.soon_s + 1 else 0
        self.seen = self.seen + 1 if self.is_seen and stayed_s < TIMING.soon_s - 1 else 0


def hold_s(times: int) -> float:
    return min(TIMING.hold_most_s, TIMING.hold_s / 2 * 2**times) if times else 0.0


@dataclass(eq=False)
class Truth:
    play: Play
    number: int = 0
    """Of the generation that has made the newest step."""
    members: frozenset[str] = frozenset()
    step: int = 0
    stepped_at: float = 0.0
    steps_made: int = 0
    held: dict[str, int] = field(default_factory=dict)
    """The step that each node must still have: what it trained, unless a fault has taken it."""
    stays: dict[str, Stay] = field(default_factory=dict)
    published: int = 0
    publisher: object = None
    """The agent's life that has published it."""
    calm_since: float = 0.0
    """When the last fault was over; far in the future while one lasts."""
    order: tuple[str, ...] = ()
    room: Room | None = None
    ready_at: dict[str, float] = field(default_factory=dict)
    """When each node has loaded beside a group, for which it then waits."""

    def breaks(self, what: str) -> None:
        self.play.note(f"BROKEN {what}")
        raise Broken(what)

    # -- steps -------------------------------------------------------------------------------------------------------

    def begins(self, group: Group) -> None:
        """It goes on from the newest step that any of its members has: nothing that was announced is lost."""
        names = [one.node.machine.name for one in group.workers.values()]
        newest = max(self.held.get(name, 0) for name in names)
        self.play.note(f"group of {', '.join(names)} goes on after step {group.step}")
        if group.step < newest:
            self.breaks(f"step {newest} was announced, and a group that has it goes on after step {group.step}")

    def steps(self, group: Group) -> None:
        names = frozenset(one.node.machine.name for one in group.workers.values())
        numbers = {one.number for one in group.workers.values()}
        number = max(numbers)
        if len(numbers) > 1:
            self.breaks(f"one group has workers of the generations {sorted(numbers)}")
        if not self.can_train(names):
            self.breaks(f"{', '.join(sorted(names))} train, and are too few")
        if number < self.number:
            self.breaks(f"a group of generation {number} makes a step after one of generation {self.number}")
        if number == self.number and names != self.members:
            self.breaks(f"two groups train in generation {number}")
        self.number, self.members, self.step, self.stepped_at = number, names, group.step, self.play.time
        self.steps_made += 1
        for name in names:
            self.held[name] = group.step

    def can_train(self, names: Collection[str]) -> bool:
        half = 2 * len(names) - len(self.order)
        enough = half > 0 or (half == 0 and self.order[0] in names)
        return enough and not (self.room and self.room.missing(list(names)))

    def starts(self, node: Trained) -> None:
        if self.play.time < node.keeping_until:
            self.breaks(f"workers start on {node.machine.name} while the last checkpoint is being kept")
        if any(one.code is None and one.life is node.machine.life for one in node.workers):
            self.breaks(f"workers start on {node.machine.name} beside one that cannot be ended")

    def killed(self, worker: Worker) -> None:
        """By its agent. It must have had time to save."""
        node = worker.node
        was_away = node.machine.woke_at > worker.asked_at or not worker.leaves
        if worker.step <= node.kept or not worker.can_work or was_away:
            self.loses(node.machine.name, node.kept)
        elif not node.machine.disk_is_full:
            self.breaks(f"a worker of {node.machine.name} is killed before it could save step {worker.step}")

    def loses(self, name: str, kept: int) -> None:
        """A fault took what only its memory held."""
        self.held[name] = min(self.held.get(name, 0), kept)

    # -- generations -------------------------------------------------------------------------------------------------

    def adopts(self, name: str, new: Generation, old: Generation | None) -> None:
        self.play.note(f"{name} follows generation {new.number} of {', '.join(new.members)}")
        if new.number < self.published or new.host != name:  # two hosts may have published the same number
            return
        first, self.published = self.published == 0, new.number
        life = self.play.machines[name].life
        is_seen = life is self.publisher
        if not is_seen:
            self.publisher = life
            for stay in self.stays.values():
                stay.seen, stay.is_seen = 0, False
        for other in self.order:
            stay = self.stays.setdefault(other, Stay())
            if other in new.members and not stay.is_in:
                self._has_its_place_in_time(other, stay, to_few=old is None)
                stay.joins(None if first else self.play.time, is_seen)
            elif other not in new.members and stay.is_in:
                stay.is_lost(self.play.time)

    def _has_its_place_in_time(self, name: str, stay: Stay, *, to_few: bool) -> None:
        """A node that is back has its place at once; one that comes and goes only after a while, unless too few are
        left without it."""
        life = self.play.machines[name].life
        waited_s = self.play.time - stay.lost_at
        if not to_few and waited_s < hold_s(stay.seen) - 0.5:
            self.breaks(f"{name} has come and gone {stay.seen} times, and is let in after {waited_s:.1f} s")
        ready_at = self.ready_at.get(name, 0.0)
        waited_s = self.play.time - max(self.calm_since, life.began_at, stay.lost_at, ready_at)
        if not to_few and not life.agent.health.fitness.rests and waited_s > hold_s(stay.short) + PLACE_S:
            self.breaks(f"{name} has come and gone {stay.short} times, and is let in only after {waited_s:.1f} s")

    def may_be_held_s(self, name: str) -> float:
        """How long its coming and going may keep it out at most."""
        stay = self.stays.get(name, Stay())
        return hold_s(stay.short + (stay.is_in and stay.since is not None))

    # -- the agents' own files ---------------------------------------------------------------------------------------

    def check_members(self, machine: Machine) -> None:
        """From plan to plan what was lost and who joined adds up to who trains."""
        lines = next((data for file, data in machine.files.items() if file.name == "members.jsonl"), b"")
        members: set[str] | None = None
        lost: set[str] = set()
        joined: set[str] = set()
        number = 0
        for line in lines.split(b"\n")[:-1]:
            event = json.loads(line)
            kind, names = event["event"], set(event["nodes"])
            if kind == "up":
                members = None
            elif kind == "lost":
                lost |= names
            elif kind == "joined":
                joined |= names
            elif kind == "plan":
                if event["epoch"] <= number:
                    self.breaks(f"{machine.name} notes generation {event['epoch']} after {number}")
                if members is not None and names != (members - lost) | joined:
                    self.breaks(f"{machine.name} notes {sorted(members)}, lost {sorted(lost)}, joined {sorted(joined)}"
                                f" and then {sorted(names)}")  # fmt: skip
                number, members, lost, joined = event["epoch"], names, set(), set()
