"""A node's files of the queue, for its agent and for what people send to it. Standard library alone: it is sent along.

What is given to a node for a run that waits lies in config/queue/RUN, below the names that it gets when its turn comes.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..files import write_atomic
from .paths import QUEUE, QUEUE_ASKED, QUEUE_LIST, SECRET, THEN, WANTED
from .queue_order import Entry, Queue, launch_of
from .secret import secret_of

LOCK = f"{QUEUE}/.lock"


def known(home: Path) -> Queue:
    """What this node knows: its agent's list, and what people changed since."""
    return read(home / QUEUE_LIST).merged(read(home / QUEUE_ASKED))


def read(file: Path) -> Queue:
    with suppress(OSError, ValueError):
        return Queue.of_json(file.read_text())
    return Queue()


def ask(home: Path, change: Queue) -> Queue:
    """Leaves for its agent what people changed. The whole queue as it is known then."""
    with _locked(home):
        queue = known(home).merged(change)
        write_atomic(home / QUEUE_ASKED, queue.to_json().encode(), mode=0o600)
    return queue


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Two people at once: neither's change is lost."""
    (home / QUEUE).mkdir(parents=True, exist_ok=True)
    with (home / LOCK).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def launch_in(folder: Path) -> str:
    """The launch whose files lie below it; empty where they are of none."""
    token = secret_of(folder / SECRET).token
    return launch_of(token) if token else ""


def put_in_place(home: Path, entry: Entry) -> str:
    """The files of this run become those that the node runs by. Why they cannot, or nothing."""
    folder = home / QUEUE / entry.run
    if launch_in(folder) != entry.launch:
        return f"config/queue/{entry.run} has not what was launched; ./motley queue --remove {entry.run}, and launch it"
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for path in sorted(files, key=lambda path: path == folder / SECRET):  # which says whose they are
        write_atomic(home / path.relative_to(folder), path.read_bytes(), mode=path.stat().st_mode & 0o777)
    (home / THEN).unlink(missing_ok=True)  # what was to follow the run before
    if (home / WANTED).exists():
        (home / WANTED).write_text(f"{entry.run}\n")
    return ""
