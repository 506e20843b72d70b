# MIT License, see LICENSE
"""A node that somebody needs for something else leaves its run until it is unpaused. Standard library alone."""

from __future__ import annotations

import time
from pathlib import Path

from ..train.files import write_atomic
from ..train.pause import read, words
from ..train.runlog.paths import PAUSE
from .node_replies import Paused
from .run_files import agent_view, named_run, saving_s
from .run_processes import processes

FREE_S = 12.0
"""Until what a node holds in memory is free, and what its workers need for saving: then they are killed."""


def paused(home: Path) -> str:
    """Until when, in words; empty where it is not."""
    found = read(home / PAUSE, time.time())
    return (words(found.until, time.time()) or "until unpaused") if found else ""


def pause(home: Path, lasts: str = "") -> Paused:
    """This node steps aside: its agent ends its workers, so that their memory is free. Waits until it is."""
    began = time.time()
    here = processes(home)
    script = agent_view(home, named_run(home)).get("script", "") if here else ""
    if script:
        return {"failed": f"the script {script} is running, and it cannot do without this machine\nfix: ./motley stop"}
    write_atomic(home / PAUSE, f"{lasts}\n".encode() if lasts else b"")
    free_s = max(FREE_S, saving_s(home, named_run(home)) + FREE_S / 2)
    while (left := workers(home)) and time.time() - began < free_s:
        time.sleep(0.05)
    return {"was_on": bool(here), "until": paused(home), "left": left, "seconds": round(time.time() - began, 2)}


def unpause(home: Path) -> dict[str, bool]:
    was = paused(home)
    (home / PAUSE).unlink(missing_ok=True)
    return {"was": bool(was), "was_on": bool(processes(home))}


def workers(home: Path) -> list[int]:
    """The fork server holds no GPU and little memory; what a worker holds is what somebody else wants."""
    return [pid for pid, facts in processes(home).items() if facts["part"] == "worker"]
