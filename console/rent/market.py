"""What Motley asks of a market of machines: five calls. A market is one file that makes them (clore.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


class Unanswered(Exception):
    """No answer, or none that can be understood: whether it was done, nobody knows."""


class Declined(Exception):
    """The market says no: nothing was done."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A machine that is to let. What the market does not say is 0 or empty, and then it fits nobody's needs."""

    server: int
    gpu: str
    gpus: int
    gpu_gb: float
    """The memory of each GPU."""
    cuda: float
    """The newest CUDA that its driver runs."""
    ram_gb: float
    disk_gb: float
    down_mbit: float
    reliability: float
    """From 0 to 1."""
    country: str
    max_hours: float
    taken: bool
    usd_h: Mapping[str, float]
    """Price of an hour on demand, without the market's fee, by the currency it is paid in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One order, as it is sent."""

    mark: str
    """What the order carries, by which it is found again."""
    server: int
    currency: str
    usd_h: float
    """The price that was agreed to: if it has risen, the market declines."""
    public_key: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """A machine that the market bills."""

    number: int
    server: int
    mark: str
    """Empty: it carries none, or the market does not show it."""
    host: str
    ports: Mapping[int, int]
    """Which port outside leads to which inside."""

    @property
    def ready(self) -> bool:
        return bool(self.host) and 22 in self.ports


class Market(Protocol):
    name: str
    fee: float
    """What the renter pays on top, as a part of the price."""

    def offers(self) -> list[Offer]: ...

    def order(self, request: Request) -> int:
        """Orders a machine; returns the order's number. Sent once: nobody calls it again for the same wish."""
        ...

    def orders(self) -> list[Order]:
        """All that are billed now, whoever made them."""
        ...

    def cancel(self, number: int) -> None:
        """Ends the bill. Declined: there is no such order, so there is no bill either."""
        ...

    def balance(self) -> dict[str, float]:
        """The account's balance, by currency."""
        ...
