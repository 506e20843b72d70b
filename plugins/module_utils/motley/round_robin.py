"""Who is measured with whom, and when: every pair once, nobody in two at a time. Pure."""

from __future__ import annotations


def turns(me: str, names: list[str]) -> list[tuple[str, bool]]:
    """This node's partners in the order of a tournament, and whether it is the one who begins."""
    seats: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    order = []
    for _ in range(len(seats) - 1):
        for one, other in zip(seats[: len(seats) // 2], reversed(seats[len(seats) // 2 :])):  # noqa: B905
            if me in (one, other) and one is not None and other is not None:
                partner = other if one == me else one
                order.append((partner, names.index(me) < names.index(partner)))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return order
