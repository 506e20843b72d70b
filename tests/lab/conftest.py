"""Hosts on which a run can be launched."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.bootstrap import Person


@pytest.fixture(scope="module")
def person(ready_trio: Person) -> Iterator[Person]:
    ready_trio.writes(motley_render_environment={"OMP_NUM_THREADS": 1})  # three machines share these cores
    yield ready_trio
    ready_trio.types("stop")
