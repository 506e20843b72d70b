"""What to do with what the market bills and what this controller knows. Pure: facts in, actions out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from console.rent.lease import HELD, ORDERING, RETURNING, Lease, Moment, between
from console.rent.market import Order

SETTLE_S = 600.0
"""An order without an answer may still be made for so long."""
LISTED_S = 90.0
"""An order that was answered may be missing in the market's list for so long."""
IDLE_S = 2400.0
"""A machine on which no run was begun goes back after so long; `rented_machine.look` sees it."""


@dataclass(frozen=True, slots=True)
class GiveBack:
    order: int
    why: str


@dataclass(frozen=True, slots=True)
class Found:
    """The order of this lease, which had none or did not know where its machine answers."""

    lease: Lease
    order: Order


@dataclass(frozen=True, slots=True)
class Close:
    """Nothing is billed for it any more."""

    lease: Lease
    why: str


Action = GiveBack | Found | Close


def decide(orders: Sequence[Order], leases: Sequence[Lease], at: Moment, owner: str, *, renting: bool) -> list[Action]:
    """`renting`: whether the command lives that is to prove the machine. Without it, one not proven goes back."""
    leases = [lease if renting else abandoned(lease) for lease in leases]
    actions: list[Action] = []
    billed: dict[str, Order] = {}
    for order in sorted(orders, key=lambda order: order.number):
        lease = lease_of(order, leases)
        if lease is None:
            if order.mark.startswith(owner):
                actions.append(GiveBack(order.number, "no lease here knows it"))
        elif lease.mark in billed:
            actions.append(GiveBack(order.number, "it is a second one for the same request"))
        else:
            billed[lease.mark] = order
            actions += of_billed(lease, order, at)
    for lease in leases:
        if lease.mark not in billed:
            actions += of_unbilled(lease, at)
    return actions


def abandoned(lease: Lease) -> Lease:
    unproven = lease.state in (ORDERING, HELD)
    return replace(lease, state=RETURNING, why="its command ended before it was proven") if unproven else lease


def lease_of(order: Order, leases: Sequence[Lease]) -> Lease | None:
    """The lease of an order, by number or mark. Where the market has no marks: by machine, if the order is newer."""
    for lease in leases:
        if order.number == lease.order or (order.mark and order.mark == lease.mark):
            return lease
    for lease in leases:
        unknown = not order.mark and not lease.order and order.number not in lease.before
        if unknown and order.server == lease.server:
            return lease
    return None


def of_billed(lease: Lease, order: Order, at: Moment) -> list[Action]:
    over = lease.left_s(at) <= 0
    if over or lease.state == RETURNING:
        why = "its time is over" if over else lease.why
        found: list[Action] = [] if lease.order else [Found(replace(lease, state=RETURNING, why=why), order)]
        return [*found, GiveBack(order.number, why)]
    if not lease.order or (order.ready and not lease.host):
        return [Found(lease, order)]
    return []


def of_unbilled(lease: Lease, at: Moment) -> list[Action]:
    since = between(lease.born, at)
    if not lease.order:
        return [Close(lease, lease.why or "it was never made")] if since > SETTLE_S else []
    if since < LISTED_S and lease.state != RETURNING and lease.left_s(at) > 0:
        return []
    if lease.state == RETURNING or lease.left_s(at) <= 0:
        return [Close(lease, lease.why or "its time is over")]
    return [Close(lease, "the market has ended it")]
