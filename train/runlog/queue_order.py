"""The queue of a cluster: the runs that are to follow one another, the same on all nodes. Pure; docs/inside/queue.md.

Each node keeps it in two files below its home: config/queue/list.json is its agent's, config/queue/asked.json has what
people changed. What a node knows is both merged, and what nodes tell each other is merged into it. Merging takes for
each run the newest place and the surest end, so the order in which lists meet does not matter, and nothing is lost by a
node that was off. Standard library alone: it is sent to the nodes.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

HOWS = ("removed", "stopped", "failed", "done")
"""How a run of the queue ends; of two, the later one here counts."""
KEPT_ENDS = 20
"""How many runs that have ended are kept: a node that was off learns from them what it need not train."""
MOST_WAITING = 24
"""The most runs that wait: with the kept ones and 16 machines each, a message between nodes stays below the 64 KiB that
they read."""


class Refused(Exception):
    """Why a change of the queue is none."""


@dataclass(frozen=True, kw_only=True)
class End:
    how: str
    time: float = 0.0
    reason: str = ""

    def rank(self) -> tuple[int, float, str]:
        """The surer end counts; of two that are as sure, the earlier one."""
        return HOWS.index(self.how), -self.time, self.reason

    def __post_init__(self) -> None:
        if self.how not in HOWS:
            raise ValueError(f"no run ends '{self.how}'")


@dataclass(frozen=True, kw_only=True)
class Entry:
    launch: str
    """Names it: the hash of the launch's token."""
    run: str
    nodes: tuple[tuple[str, str], ...]
    """Its machines, each with its address; the head first."""
    added: float
    """When it was put into the queue; no two have the same."""
    place: float = 0.0
    moves: int = 0
    """How often it was moved: the newest place counts."""
    end: End | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.nodes)

    def merged(self, other: Entry) -> Entry:
        newest = max(self, other, key=lambda entry: (entry.moves, entry.place))
        end = max(filter(None, (self.end, other.end)), key=End.rank, default=None)
        return replace(newest, end=end, added=min(self.added, other.added))


@dataclass(frozen=True, kw_only=True)
class Queue:
    key: str = ""
    """The secret with which the nodes of this queue know each other."""
    entries: tuple[Entry, ...] = ()
    """The runs in the order in which they were added."""
    forgotten: float = 0.0
    """What was added up to then, and is not among the entries, has ended."""

    # -- what it says ------------------------------------------------------------------------------------------------

    def waiting(self) -> list[Entry]:
        """What has not ended, in its order: the first is the one whose turn it is."""
        waiting = (entry for entry in self.entries if entry.end is None)
        return sorted(waiting, key=lambda entry: (entry.place, entry.added))

    def turn(self) -> Entry | None:
        return next(iter(self.waiting()), None)

    def concerns(self, node: str) -> bool:
        return any(node in entry.names for entry in self.waiting())

    def of(self, launch: str) -> Entry | None:
        return next((entry for entry in self.entries if entry.launch == launch), None)

    def addresses(self) -> dict[str, str]:
        """Name → address of every machine of every run; of several addresses the newest."""
        return {name: address for entry in self.entries for name, address in entry.nodes}

    # -- what changes it ---------------------------------------------------------------------------------------------

    def merged(self, other: Queue) -> Queue:
        by_launch: dict[str, Entry] = {}
        for entry in (*self.entries, *other.entries):
            known = by_launch.get(entry.launch)
            by_launch[entry.launch] = known.merged(entry) if known else entry
        keys = sorted(filter(None, (self.key, other.key)))
        forgotten = max(self.forgotten, other.forgotten)
        kept = (entry for entry in by_launch.values() if entry.added > forgotten)
        entries = tuple(sorted(kept, key=lambda entry: entry.added))
        return Queue(key=keys[0] if keys else "", entries=entries, forgotten=forgotten)

    def ended(self, launch: str, end: End) -> Queue:
        entries = (entry.merged(replace(entry, end=end)) if entry.launch == launch else entry for entry in self.entries)
        return replace(self, entries=tuple(entries))

    def added(self, *new: Entry) -> Queue:
        """The queue with these behind all others, or Refused. What has ended long ago is forgotten."""
        queue = self
        for entry in new:
            waiting, run = queue.waiting(), entry.run
            if len(waiting) >= MOST_WAITING:
                what = f"{len(waiting)} runs wait already"
                raise Refused(f"{what}\nfix: ./motley queue --remove RUN, or wait for an end")
            if run in [other.run for other in waiting]:
                raise Refused(f"'{run}' is in the queue already\nfix: --run NAME, or ./motley queue --remove {run}")
            last = max((other.added for other in queue.entries), default=queue.forgotten)
            place = max((other.place for other in waiting), default=0.0) + 1.0
            placed = replace(entry, added=max(entry.added, last + 0.001), place=place)
            queue = replace(queue, entries=(*queue.entries, placed))
        return queue._forgets()

    def moved(self, run: str, to: int) -> Queue:
        """The queue with that run at this place, counted from 1; or Refused."""
        entry, waiting = self._named(run), self.waiting()
        if not 1 <= to <= len(waiting):
            raise Refused(f"to: {to} is no place\nfix: a number from 1 to {len(waiting)}")
        rest = [other for other in waiting if other is not entry]
        before = rest[to - 2].place if to > 1 else rest[0].place - 2 if rest else 0.0
        after = rest[to - 1].place if to <= len(rest) else before + 2
        between = (before + after) / 2
        if before < between < after:
            return self._at({entry.launch: between})
        # Two people have added at once: there is nothing between their runs, so all get a place of their own.
        order = [*rest[: to - 1], entry, *rest[to - 1 :]]
        return self._at({other.launch: float(number) for number, other in enumerate(order)})

    def _at(self, places: Mapping[str, float]) -> Queue:
        """The queue with these launches at other places."""
        entries = (
            replace(entry, place=places[entry.launch], moves=entry.moves + 1) if entry.launch in places else entry
            for entry in self.entries
        )
        return replace(self, entries=tuple(entries))

    def without(self, run: str, at: float) -> Queue:
        return self.ended(self._named(run).launch, End(how="removed", time=at, reason="removed by a person"))

    def _named(self, run: str) -> Entry:
        waiting = self.waiting()
        for entry in waiting:
            if entry.run == run:
                return entry
        names = names_of(waiting)
        raise Refused(f"no run '{run}' is in the queue\nfix: {f'one of {names}' if names else 'nothing waits there'}")

    def _forgets(self) -> Queue:
        """Only the newest few are kept that were added before all that wait."""
        first = min((entry.added for entry in self.entries if entry.end is None), default=float("inf"))
        old = [entry for entry in self.entries if entry.added < first][:-KEPT_ENDS]
        gone = max((entry.added for entry in old), default=self.forgotten)
        return replace(self, entries=tuple(entry for entry in self.entries if entry.added > gone), forgotten=gone)

    # -- as text -----------------------------------------------------------------------------------------------------

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def of_json(cls, text: str | bytes) -> Queue:
        """ValueError where it is none."""
        try:
            facts = json.loads(text)
            return cls(**facts | {"entries": tuple(map(_entry, facts["entries"]))})
        except (KeyError, TypeError, AttributeError) as odd:
            raise ValueError(str(odd)) from None


def _entry(facts: Mapping[str, Any]) -> Entry:
    end = facts["end"]
    nodes = tuple((str(name), str(address)) for name, address in facts["nodes"])
    return Entry(**{**facts, "nodes": nodes, "end": End(**end) if end else None})


def merged(queues: Iterable[Queue]) -> Queue:
    return functools.reduce(Queue.merged, queues, Queue())


def launch_of(token: str) -> str:
    """The name of a launch: its token's hash, as this is shown and copied more easily than what holds the token."""
    return hashlib.sha256(token.encode()).hexdigest()[:16]


def names_of(entries: Sequence[Entry]) -> str:
    return ", ".join(entry.run for entry in entries)
