"""What of a run somebody is to be told, and what somebody was: the same on all nodes, so no new host tells it again.

A heartbeat carries its node's ledger, and each node merges those that it receives and keeps the result (epoch.json).
Who is missing since when is written by the host of a generation alone, so the highest number wins; what was sent only
grows. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from train.send_notice import Notice


@dataclass(frozen=True)
class Lost:
    """Why a member cannot be one any more."""

    how: str
    """How it was lost: silent, apart (a link between it and another member is cut), or its own condition."""
    why: str

    def __str__(self) -> str:
        return f"steps aside: {self.why}" if self.how == "away" else self.why


@dataclass(frozen=True, kw_only=True)
class Loss:
    name: str
    number: int
    """The number of the first generation without it."""
    time: float
    """When it was lost, by the clock of the host that noticed it."""
    reason: str
    how: str = ""


@dataclass(frozen=True, kw_only=True)
class Ledger:
    number: int = 0
    members: tuple[str, ...] = ()
    """The members of the newest generation, its host first."""
    lost: tuple[Loss, ...] = ()
    sent: tuple[str, ...] = ()
    """The keys of the notices that were sent."""

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Ledger:
        lost, sent = tuple(Loss(**loss) for loss in facts["lost"]), tuple(map(str, facts["sent"]))
        return cls(number=int(facts["number"]), members=tuple(facts["members"]), lost=lost, sent=sent)

    def merged(self, other: Ledger) -> Ledger:
        newest = max(self, other, key=lambda ledger: ledger.number)
        return replace(newest, sent=tuple(sorted(filter(newest._may_come_again, {*self.sent, *other.sent}))))

    def _may_come_again(self, key: str) -> bool:
        """Whether this notice may come again; else it is forgotten, or a run of weeks would make heartbeats longer."""
        kind, _, about = key.partition("-")
        if kind == "lost":
            return any(about == f"{loss.number}-{loss.name}" for loss in self.lost)
        return kind != "waiting" or (about.isdecimal() and int(about) >= self.number)

    def followed_by(
        self, number: int, members: tuple[str, ...], order: Sequence[str], why: Mapping[str, Lost], at: float
    ) -> Ledger:
        """The ledger of a new generation, written by its host. A loss that lasts keeps its first number and time."""
        lasting = {loss.name: loss for loss in self.lost}
        lost = tuple(
            lasting.get(name)
            or Loss(name=name, number=number, time=round(at, 3), reason=why[name].why, how=why[name].how)
            for name in order
            if name not in members
        )
        new = replace(self, number=number, members=members, lost=lost)
        return new.merged(new)

    def unsent(self, notices: Sequence[Notice]) -> list[Notice]:
        return [notice for notice in notices if notice.key not in self.sent]


EMPTY = Ledger()
