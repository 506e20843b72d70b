"""Reads a file of events that another process is writing: whole lines alone, each once.

Standard library alone: console/infra/node.py sends this file to the nodes as it is.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any


class Tail:
    """What a growing file has got since the last time. With `last_bytes` the first time reads no more than its end."""

    def __init__(self, file: Path, *, last_bytes: int = 0, offset: int = 0) -> None:
        self.file, self.last_bytes, self.offset = file, last_bytes, offset

    def read(self) -> bytes:
        """The whole lines; one that is being written, or was torn by a power cut, stays for later."""
        try:
            size = self.file.stat().st_size
            if self.last_bytes:
                self.offset, self.last_bytes = max(0, size - self.last_bytes), 0
            self.offset = min(self.offset, size)  # another file of this name has begun
            if size == self.offset:
                return b""
            with self.file.open("rb") as stream:
                stream.seek(self.offset)
                data = stream.read()
        except OSError:
            return b""
        data = data[: data.rfind(b"\n") + 1]
        self.offset += len(data)
        return data

    def lines(self) -> list[bytes]:
        """One JSON object each: the first of them may have been cut by `last_bytes`."""
        return [line for line in self.read().split(b"\n") if line.startswith(b"{") and line.endswith(b"}")]

    def events(self) -> list[dict[str, Any]]:
        found = []
        for line in self.lines():
            with contextlib.suppress(ValueError):
                found.append(json.loads(line))
        return found


def read(file: Path) -> list[dict[str, Any]]:
    """All events of a file; none where there is none."""
    return Tail(file).events()
