"""A process beside this one that must not be left behind, however this one ends."""

from __future__ import annotations

import signal
import sys

PR_SET_PDEATHSIG = 1


def ending_with_this(command: list[str]) -> list[str]:
    """The command, as a process that gets SIGTERM when the thread that started it ends."""
    tie = f"import ctypes, os, sys; ctypes.CDLL(None).prctl({PR_SET_PDEATHSIG}, {signal.SIGTERM:d}); "
    return [sys.executable, "-c", f"{tie}os.execv(sys.argv[1], sys.argv[1:])", *command]
