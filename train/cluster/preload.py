"""Loading begins while a launch is still being prepared: the agent is there before its run, and waits for it.

A launch leaves config/run-preload on a node (plugins/module_utils/motley/preloading.py), and motley-run.path starts
the unit with the launch_cluster.sh of the run before. This agent then has the libraries loaded (forkserver.py), which
opens no GPU, and listens on no port. When config/run-wanted is there it becomes the agent of that run, if all that it
was started by is as it was then. Otherwise, after a minute, and when config/run-preload is taken away, it ends with
NO_RUN, and nothing of it is left; a run that is wanted is then started by the unit as if it had never been there.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from train.cluster.forkserver import ForkServer
from train.cluster.timing import TIMING
from train.runlog.paths import PRELOAD, UNIT, WANTED

NO_RUN = 75


def begun_early(home: Path) -> ForkServer | None:
    """The fork server where this agent was there before its run; ends this process where no run comes.

    Of the unit alone: whoever starts launch_cluster.sh by hand means the run. What the unit was started for may
    be taken back before this process is there: then the script is that of the run before, which nobody wants.
    """
    if not of_the_unit():
        return None
    if (home / WANTED).exists():
        (home / PRELOAD).unlink(missing_ok=True)  # the run was faster
        return None
    return wait_for_run(home) or sys.exit(NO_RUN)


def of_the_unit() -> bool:
    return UNIT in Path("/proc/self/cgroup").read_text()


def wait_for_run(home: Path) -> ForkServer | None:
    """Waits for a run and returns the fork server for it; None where this agent is to end."""
    before = started_by(home)
    forkserver = ForkServer()
    while is_fresh(home / PRELOAD):
        if (home / WANTED).exists():
            if started_by(home) != before or forkserver.process.poll() is not None:
                break
            (home / PRELOAD).unlink(missing_ok=True)
            return forkserver
        time.sleep(TIMING.preload_look_s)
    forkserver.process.kill()
    forkserver.process.wait()
    return None


def is_fresh(mark: Path) -> bool:
    """Whether the mark is of now: one that a power cut has left is not."""
    try:
        return abs(time.time() - mark.stat().st_mtime) < TIMING.preload_s
    except OSError:
        return False


def started_by(home: Path) -> tuple[list[str], str, str]:
    """What starts an agent: the script but for its comments, which name the run; the code; the environment."""
    script, record = home / "scripts/launch_cluster.sh", home / "env/motley-env.json"
    lines = [line for line in script.read_text().splitlines() if not line.startswith("#")]
    return lines, os.path.realpath(home / "code"), record.read_text() if record.exists() else ""
