"""A market over HTTP; leases on a disk, and looks at a machine, that take no time."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from console.rent import watcher
from console.rent.clore import Clore
from lab.market import Books
from tests.support.rented import served_market


@pytest.fixture(autouse=True)
def without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(watcher, "within", lambda _, look: look())  # a thread for each


@pytest.fixture
def served() -> Iterator[tuple[Books, Clore]]:
    with served_market() as served:
        yield served


@pytest.fixture
def books(served: tuple[Books, Clore]) -> Books:
    return served[0]


@pytest.fixture
def market(served: tuple[Books, Clore]) -> Clore:
    return served[1]
