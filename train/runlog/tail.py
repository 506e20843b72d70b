"""Reads a file of events that another process is writing: whole lines alone, each once.

Standard library alone: console/infra/node.py sends this file to the nodes as it is.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

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
        news = []
        for line in self.read().split(b"\n"):
            with contextlib.suppress(ValueError):
                if isinstance(event := json.loads(line), dict):
                    news.append((event, line))
        return news

    def events(self) -> list[Event]:
        return [event for event, _ in self.news()]


def read(file: Path) -> list[Event]:
    """All events of a file; none where there is none."""
    return Tail(file).events()
