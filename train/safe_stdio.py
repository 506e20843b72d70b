"""Output may get lost: on a full disk, to a terminal that is gone, to a reader that left. No work ends by it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any


class Forgiving:
    """A stream whose words may get lost."""

    def __init__(self, stream: Any, forgiven: type[OSError] = OSError) -> None:
        self.stream, self.forgiven = stream, forgiven
        self.unread = False

    def write(self, text: str) -> int:
        self._try(self.stream.write, text)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        self._try(self.stream.writelines, lines)

    def flush(self) -> None:
        self._try(self.stream.flush)

    def _try(self, do: Any, *words: Any) -> None:
        try:
            do(*words)
        except BrokenPipeError:
            self._leave()
        except self.forgiven:
            pass

    def _leave(self) -> None:
        """What is still in its buffer would be tried again at the end, and fail aloud."""
        self.unread = True
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.stream.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def may_get_lost() -> None:
    sys.stdout, sys.stderr = Forgiving(sys.stdout), Forgiving(sys.stderr)


@contextmanager
def may_be_unread() -> Iterator[None]:
    """`… | head -3`: the rest of what is printed is lost, and what was begun is done to its end."""
    before = sys.stdout, sys.stderr
    ours = sys.stdout, sys.stderr = [Forgiving(stream, BrokenPipeError) for stream in before]
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if [sys.stdout, sys.stderr] == ours:  # who forgives more, as an agent does of a full disk, does so to the end
            sys.stdout, sys.stderr = before


def unread() -> bool:
    """Nobody reads any more: what only shows something may end."""
    return getattr(sys.stdout, "unread", False)
