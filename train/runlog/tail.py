"""Reads a file of events that another process is writing: whole lines alone, each once; no line that is no event.

Standard library alone: console/infra/node.py sends this file to the nodes as it is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .event_types import is_event

Event = dict[str, Any]
"""A line of events.jsonl (event_types.py) or of members.jsonl."""


class Tail:
    """What a growing file has got since the last time. With `last_bytes` the first time reads no more than its end."""

    def __init__(self, file: Path, *, last_bytes: int = 0, offset: int = 0) -> None:
        self.file, self.last_bytes, self.offset = file, last_bytes, offset

    def read(self) -> bytes:
        """The whole lines; one that is being written, or was torn by a power cut, stays for later."""
        try:
            size = self.file.stat().st_size
            if self.last_bytes:
                self.offset = max(0, size - self.last_bytes)
            self.offset = min(self.offset, size)  # another file of this name has begun
            if size == self.offset:
                return b""
            with self.file.open("rb") as stream:
                if self.last_bytes and self.offset:
                    stream.seek(self.offset - 1)
                    self.offset += len(stream.readline()) - 1  # the rest of a line, which may look like one
                stream.seek(self.offset)
                data = stream.read()
        except OSError:
            return b""
        self.last_bytes = 0
        data = data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        return data

    def news(self) -> list[tuple[Event, bytes]]:
        """Each event and its line."""
        return events_of(self.read().split(b"\n"))

    def events(self) -> list[Event]:
        return [event for event, _ in self.news()]


def read(file: Path) -> list[Event]:
    """All events of a file; none where there is none."""
    return Tail(file).events()


def events_of(lines: Iterable[bytes], *, whole: bool = False) -> list[tuple[Event, bytes]]:
    """Each event and its line; of a line that was torn or changed nothing. `whole`: nor of one that lacks something."""
    events = []
    for line in lines:
        try:
            event = json.loads(line.decode())
        except (ValueError, RecursionError):
            continue
        if is_event(event, whole=whole):
            events.append((event, line))
    return events
