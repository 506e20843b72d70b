"""warm_agent.py PROGRAM…: an agent that is a fork of the tests' fork server, and whose own is a fork of it.

No library is read again. It forks while it has one thread; a real agent starts its fork server beside its heartbeat's.
"""

import argparse
import os
import signal
import socket
import sys

from train.cluster import forkserver
from train.cluster.attach_to_agent import PR_SET_CHILD_SUBREAPER, prctl


class Forked:
    """What is needed of a Popen."""

    returncode: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        if self.returncode is None and os.waitpid(self.pid, os.WNOHANG)[0]:
            self.returncode = -signal.SIGKILL
        return self.returncode

    def kill(self) -> None:
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


def forked() -> tuple[socket.socket, Forked]:
    link, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    agent = os.getpid()
    with theirs:
        if pid := os.fork():
            return link, Forked(pid)
        os.setsid()
        link.close()
        os.dup2(theirs.fileno(), 0)
    os._exit(forkserver.main(argparse.Namespace(parent=agent, cold=False)))


def is_there(self: forkserver.ForkServer) -> None:
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    self.link, self.process = FORKED


if __name__ == "__main__":
    forkserver._import_libraries = list  # they are read
    FORKED = forked()
    forkserver.ForkServer.__init__ = is_there
    sys.exit(forkserver._run(sys.argv[1:]))
