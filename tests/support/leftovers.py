"""What a test leaves changed in its process is met by each test after it, and by every program that these start."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

State = dict[tuple[str, str], Any]


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Whatever is, is put back, and the test that has left it fails."""
    before = here()
    yield
    if left := put_back(before):
        pytest.fail(
            "\n".join(["the test leaves to those after it (monkeypatch, or a process of its own, does not):", *left])
        )


def here() -> State:
    handled = set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGALRM}  # the last is pytest-timeout's
    umask = re.search(r"^Umask:\s*(\d+)", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert umask, "os.umask tells it by changing it, for the files of other threads too"
    return (
        {("handler", number.name): signal.getsignal(number) for number in handled}
        | {("variable", name): value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        | {("process", "umask"): int(umask[1], 8), ("process", "folder"): Path("/proc/self/cwd").readlink()}
    )


def put_back(before: State) -> list[str]:
    now = here()
    left = sorted(key for key in before.keys() | now.keys() if before.get(key) != now.get(key))
    for kind, name in left:
        was: Any = before.get((kind, name))
        if kind == "handler":
            signal.signal(signal.Signals[name], was or signal.SIG_DFL)
        elif name == "umask":
            os.umask(was)
        elif name == "folder":
            os.chdir(was)
        elif was is None:
            del os.environ[name]
        else:
            os.environ[name] = was
    return [f"  {kind} {name}: {now.get((kind, name))!r}, before {before.get((kind, name))!r}" for kind, name in left]
