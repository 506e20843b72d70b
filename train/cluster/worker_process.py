"""A worker's side of its agent: it dies with it, dies before it when memory runs out, and says why it failed.

The agent starts `python -m train run` with MOTLEY_AGENT (its pid) and MOTLEY_FAILURE (a file for the cause, in the
agent's memory: one that failed for a full disk must be able to say so).
Kinds of failure:
    input    bad settings or files: trying again cannot help
    check    the loss is no number, or the nodes disagree: trying again would do the same
    odd      this node alone disagrees with the majority; for the others that is `peer`
    peer     another process went away, or is the odd one; this one is sound
    port     the port of the group is taken
    own      anything else: this process, this machine
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import signal
from pathlib import Path

from train.errors import BadInput, CheckFailed
from train.safe_stdio import may_get_lost

PR_SET_PDEATHSIG, PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 1, 15, 36
NAME = "motley-worker"
"""As `ps` and `pgrep -x` know it."""
OWN_SIGNS = (
    "cuda error",
    "cuda failure",
    "unhandled cuda",
    "cublas",
    "cudnn",
    "out of memory",
    "nvml",
    "internal error",
)
"""A sick card speaks through the libraries of the network too; it is this node's, whatever else the text holds."""
PEER_SIGNS = (
    "/gloo/", "gloo connect", "connectfullmesh", "closed by peer", "reset by peer", "broken pipe", "connection refused",
    "no route to host", "remote process exited", "remote peer", "collective operation timeout", "tcpstore",
    "communicator was aborted", "did not answer", "cannot start:",
)  # fmt: skip
NETWORK_TYPES = ("DistNetworkError", "DistStoreError", "DistBackendError")
PEER_ERRNOS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ETIMEDOUT)


def belong_to_agent() -> None:
    agent = os.environ.get("MOTLEY_AGENT")
    if not agent:
        return
    may_get_lost()
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    prctl(PR_SET_NAME, NAME.encode())
    if os.getppid() != int(agent):
        os._exit(1)  # it was gone before it could be watched
    os.nice(5)  # a step may wait a little, the agent's answers may not
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")


def prctl(option: int, value: int | bytes) -> None:
    ctypes.CDLL(None).prctl(option, value)


def tell_agent(error: BaseException) -> None:
    file = os.environ.get("MOTLEY_FAILURE")
    if file and os.environ.get("MOTLEY_AGENT"):
        with contextlib.suppress(OSError):
            Path(file).write_text(json.dumps({"kind": kind(error), "message": str(error).strip()[:2000]}))


def kind(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, CheckFailed) and error.__cause__ else error
    name, text = type(cause).__name__, str(cause).lower()
    if odd := getattr(cause, "odd", None):
        return "odd" if os.environ.get("MOTLEY_NODE") in odd else "peer"
    if name in ("Disagreement", "LossNotFiniteError"):
        return "check"
    if "eaddrinuse" in text or "address already in use" in text:
        return "port"
    if isinstance(cause, CheckFailed) and any(sign in text for sign in PEER_SIGNS):
        return "peer"
    if isinstance(cause, BadInput):
        return "check" if isinstance(cause, CheckFailed) else "input"
    return "peer" if _of_a_peer(cause, name, text) else "own"


def _of_a_peer(cause: BaseException, name: str, text: str) -> bool:
    if isinstance(cause, OSError):
        return isinstance(cause, ConnectionError) or cause.errno in PEER_ERRNOS
    if name in ("AcceleratorError", "OutOfMemoryError") or any(sign in text for sign in OWN_SIGNS):
        return False
    return name in NETWORK_TYPES or (isinstance(cause, RuntimeError) and any(sign in text for sign in PEER_SIGNS))
