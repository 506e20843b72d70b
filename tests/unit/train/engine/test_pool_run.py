"""How a run in pieces ends where the system refuses something."""

import errno
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from train.engine import pool_run
from train.errors import CheckFailed

FULL = OSError(errno.ENOSPC, "No space left on device", "/home/m/results")
GONE = OSError(errno.ENOENT, "No such file or directory", "/models/x")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (FULL, "a: No space left on device (/home/m/results); make room there, then launch again"),
        (GONE, "a: FileNotFoundError: [Errno 2] No such file or directory: '/models/x'"),
        (ConnectionResetError("it was closed"), "a: ConnectionResetError: it was closed"),
    ],
)
def test_room_is_asked_for_where_the_disk_is_full(monkeypatch, error, message):
    run = SimpleNamespace(node="a", run=Mock(side_effect=error), recipe=SimpleNamespace(close=lambda: None))
    monkeypatch.setattr("train.recipes.in_pieces", lambda _: None)
    monkeypatch.setattr(pool_run, "of_this_process", lambda *_: None)
    monkeypatch.setattr(pool_run, "PoolRun", lambda *_, **__: run)
    with pytest.raises(CheckFailed) as failed:
        pool_run.run_pool(None, None, as_json=False)
    assert str(failed.value) == message and failed.value.__cause__ is error
