"""A worker attached to its agent: it ends with it, is killed before it when memory runs out, and reports its failure
(train/failures.py).

The agent starts `python -m train run` with MOTLEY_AGENT (its pid) and MOTLEY_FAILURE (a file for the cause, in the
agent's memory: a full disk must not keep it from reporting).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from pathlib import Path

from train.safe_stdio import may_get_lost

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
NAME = "motley-worker"
"""The worker's name as `ps` and `pgrep -x` know it."""


def attach_to_agent() -> None:
    agent = os.environ.get("MOTLEY_AGENT")
    if not agent:
        return
    may_get_lost()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_NAME, NAME.encode())
    if os.getppid() != int(agent):
        os._exit(1)  # the agent was gone before the kernel watched it
    os.nice(5)  # a step may wait a little, the agent's heartbeat may not
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value)
