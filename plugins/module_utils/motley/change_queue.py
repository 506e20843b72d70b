# MIT License, see LICENSE
"""What people do to the queue of runs, on one node. Standard library alone. docs/inside/queue.md"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

from ..train.runlog.last_launch import last_launch
from ..train.runlog.paths import QUEUE_LIST
from ..train.runlog.queue_files import ask, known, launch_in, put_in_place
from ..train.runlog.queue_files import read as read_queue
from ..train.runlog.queue_order import Queue
from .node_replies import Begun, Queued, Started, Stopped
from .run_files import agent_view, named_run, newest_checkpoint, saving_s
from .run_processes import agents_of, end, processes, run_on

TAKEN_S = 20.0
"""Until an agent has taken in a run that was added: it looks several times a second."""
LEAVE_S = 60.0
"""Until the agent of a run that was stopped has become that of the next, beside the time for saving."""


def queue(home: Path, change: str = "") -> Queued:
    """What this node knows of the queue, and which run it is on. `change`: of a person, merged into it."""
    ours = ask(home, Queue.of_json(change)) if change else known(home)
    run = run_on(home)
    return {
        "queue": ours.to_json(),
        "time": time.time(),
        "run": run,
        "launch": launch_in(home) if run else "",
        "nodes": list(last_launch(home).nodes) if run else [],
        "now": agent_view(home, run) if run else {},
    }


def waiting(home: Path) -> list[str]:
    """The runs of the queue that have not ended, in their order."""
    return [entry.run for entry in known(home).waiting()]


def enqueue(home: Path, change: str, node: str, start: Callable[[Path, str], Started], launch: str) -> Begun:
    """Takes in a run that was added; where nothing is on here, the first that waits for this node begins."""
    ours = ask(home, Queue.of_json(change))
    until = time.time() + TAKEN_S
    while run_on(home):
        if read_queue(home / QUEUE_LIST).of(launch):
            return {"begun": ""}
        if time.time() > until:
            why = f"the agent of '{named_run(home)}' is of an older version"
            return {"failed": f"{why}\nfix: ./motley stop, then launch it again"}
        time.sleep(0.1)
    entry = next(one for one in ours.waiting() if node in one.names)
    if why := put_in_place(home, entry):
        return {"failed": why}
    begun = start(home, entry.run)
    return {"failed": begun["failed"]} if "failed" in begun else {"begun": entry.run}


def leave(home: Path, change: str, launch: str) -> Stopped:
    """Its run is stopped, and the queue goes on: its agent saves, and becomes that of the next run."""
    began, run = time.time(), named_run(home)
    was_on = bool(run_on(home)) and launch_in(home) == launch
    patience_s, forced = saving_s(home, run) + LEAVE_S, 0
    ask(home, Queue.of_json(change))
    while was_on and processes(home) and launch_in(home) == launch:
        if time.time() - began > patience_s and not forced:
            here = processes(home)
            forced, patience_s = len(here), patience_s + LEAVE_S
            for pid in (*agents_of(here), *here):  # its unit starts it again, with what it did not listen to
                end(pid, signal.SIGKILL)
        if time.time() - began > patience_s:
            break
        time.sleep(0.1)
    return {
        "was_on": was_on,
        "run": run,
        "checkpoint": newest_checkpoint(home, run),
        "forced": forced,
        "left": sorted(processes(home)) if was_on and launch_in(home) == launch else [],
        "ports": [],
        "seconds": round(time.time() - began, 2),
    }
