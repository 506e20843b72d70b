"""Output may get lost: on a full disk, to a terminal that is gone, to a reader that left. No work ends by it.

And it commands no terminal: what data sets, models and nodes say is shown, whatever is in it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from typing import Any

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
COMMANDS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""All that is no letter to a terminal, but for the line break and the tab; and what turns the direction of writing."""


def plain(text: str) -> str:
    """The text as a terminal may show it: what would command one is a �."""
    return COMMANDS.sub("\ufffd", COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def draw(text: str, stream: Any) -> None:
    """What is ours to its last character, and may move the cursor and colour."""
    getattr(stream, "draw", stream.write)(text)


class Drawing:
    """A stream for a library that draws."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        draw(text, self.stream)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


class Forgiving:
    """A stream whose words may get lost, and are words alone."""

    def __init__(self, stream: Any, forgiven: type[OSError] = OSError, shown: Callable[[str], str] = plain) -> None:
        self.stream, self.forgiven, self.shown = stream, forgiven, shown
        self.unread = False

    def write(self, text: str) -> int:
        self._try(self.stream.write, self.shown(text))
        return len(text)

    def draw(self, text: str) -> None:
        self._try(draw, text, self.stream)

    def writelines(self, lines: Iterable[str]) -> None:
        self._try(self.stream.writelines, map(self.shown, lines))

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
def may_be_unread(shown_on: Callable[[Any], Callable[[str], str]] = lambda _: plain) -> Iterator[None]:
    """`… | head -3`: the rest of what is printed is lost, and what was begun is done to its end. `shown_on`: how each
    of the two streams shows a text."""
    before = sys.stdout, sys.stderr
    for stream in before:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal need not know ✓
    ours = sys.stdout, sys.stderr = [Forgiving(stream, BrokenPipeError, shown_on(stream)) for stream in before]
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
