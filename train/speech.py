"""What a run says may get lost: on a full disk, or to a terminal that is gone. It must never end the run."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


class Forgiving:
    """A stream whose words may get lost."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self.stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def may_get_lost() -> None:
    sys.stdout, sys.stderr = Forgiving(sys.stdout), Forgiving(sys.stderr)
