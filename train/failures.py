"""Why a process failed, in the words of its agent (train/cluster): by these it decides who is the reason, and what may
help.

Kinds of failure:
    input    bad settings or files: a retry cannot help
    check    the loss is NaN or infinite, or the nodes disagree: a retry would do the same
    odd      this node alone disagrees with the majority; for the others that is `peer`
    peer     another process is gone, or is the odd one; this one is fine
    port     the port of the group is taken
    own      anything else: this process, this machine
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
from pathlib import Path

from train.errors import BadInput, CheckFailed, PeerFailed

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
"""A broken GPU also shows in messages of the network libraries; it is this node's failure, whatever else they say."""
PEER_SIGNS = (
    "/gloo/", "gloo connect", "connectfullmesh", "closed by peer", "reset by peer", "broken pipe", "connection refused",
    "no route to host", "remote process exited", "remote peer", "collective operation timeout", "tcpstore",
    "communicator was aborted",
)  # fmt: skip
NETWORK_TYPES = ("DistNetworkError", "DistStoreError", "DistBackendError")
PEER_ERRNOS = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN, errno.ETIMEDOUT)


def report_to_agent(error: BaseException, word: int | None = None) -> None:
    """`word`: its agent's last one that it has obeyed, where it stays."""
    file = os.environ.get("MOTLEY_FAILURE")
    if file and os.environ.get("MOTLEY_AGENT"):
        with contextlib.suppress(OSError):
            facts = {"kind": classify_failure(error), "message": str(error).strip()[:2000], "word": word}
            Path(file).write_text(json.dumps(facts))


def classify_failure(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, CheckFailed) and error.__cause__ else error
    name, text = type(cause).__name__, str(cause).lower()
    if odd := getattr(cause, "odd", None):
        return "odd" if os.environ.get("MOTLEY_NODE") in odd else "peer"
    if name in ("Disagreement", "LossNotFiniteError"):
        return "check"
    if "eaddrinuse" in text or "address already in use" in text:
        return "port"
    if isinstance(cause, PeerFailed):
        return "peer"
    if isinstance(cause, BadInput):
        return "check" if isinstance(cause, CheckFailed) else "input"
    return "peer" if _is_of_a_peer(cause, name, text) else "own"


def _is_of_a_peer(cause: BaseException, name: str, text: str) -> bool:
    if isinstance(cause, OSError):
        return isinstance(cause, ConnectionError) or cause.errno in PEER_ERRNOS
    if name in ("AcceleratorError", "OutOfMemoryError") or any(sign in text for sign in OWN_SIGNS):
        return False
    return name in NETWORK_TYPES or (isinstance(cause, RuntimeError) and any(sign in text for sign in PEER_SIGNS))
