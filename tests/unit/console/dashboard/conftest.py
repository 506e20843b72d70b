"""A live page over a run that seems to be running, and a real browser that looks at it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live_run import STEPS, Board, LiveRun


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveRun]:
    with LiveRun(tmp_path / "live") as run:
        run.trains(STEPS)
        yield run


@pytest.fixture
def board(live: LiveRun) -> Iterator[Board]:
    made = Board(live)
    yield made
    with contextlib.suppress(ValueError, OSError):
        made.close()


def shared(folder: Path) -> Iterator[Board]:
    with LiveRun(folder / "live") as run:
        run.trains(STEPS)
        with contextlib.closing(Board(run)) as made:
            yield made


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """The page of a run that no test changes."""
    yield from shared(tmp_path_factory.mktemp("still"))


@pytest.fixture(scope="module")
def moving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """The page of a run to which tests add a step, and nothing else."""
    yield from shared(tmp_path_factory.mktemp("moving"))
