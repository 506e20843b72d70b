"""What a job's batch script does for its run, where the script is lost with its node: with --no-kill Slurm lets the job
go on without it, and would let it stand there until its time is over.

The script writes its beat into the job's folder. Where that stands still the agents train on, and who is left ends the
job once they are done. Otherwise it is queued again: when too few are left to go on, and before its time is over.
"""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

BEAT = "script.beat"
LOOK_S = 1.0
LOST_S = 60.0
"""After how long without a beat the script counts as lost: a shared disk may stand still for some seconds."""
WAIT_S = 60.0
"""How long too few may wait for the others before a new start is better."""
APART_S = 5.0
"""Seconds between two places that would end the job: where the first could, the next one is gone."""


@dataclass
class Beat:
    file: Path
    seen: str = ""
    at: float = field(default_factory=time.monotonic)

    def changed(self) -> bool:
        with contextlib.suppress(OSError):
            if (now := self.file.read_text()) != self.seen:
                self.seen, self.at = now, time.monotonic()
                return True
        return False

    @property
    def lost(self) -> bool:
        return time.monotonic() - self.at > LOST_S


@dataclass(frozen=True)
class Node:
    """A node of the job that is not the script's own."""

    place: int
    env: Mapping[str, str]
    status: Path
    ended: Callable[[], bool]
    """Whether the run has ended, or is not to be queued again."""


def run_agent(command: Sequence[str], node: Node, beat: Beat) -> int:
    """Runs this node's agent, as its parent."""
    with subprocess.Popen(command, env=node.env) as agent:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            signal.signal(number, lambda number, _: agent.send_signal(number))
        is_leaving = False
        while agent.poll() is None:
            time.sleep(LOOK_S)
            beat.changed()
            if beat.lost and not is_leaving and (why := reason_to_leave(node)):
                is_leaving = True
                print(f"the script of this job is gone with its node, and {why}: queued again", flush=True)
                agent.send_signal(signal.SIGUSR1)
    while not beat.changed():  # where the script lives, it sees to the rest
        if beat.lost:
            time.sleep(APART_S * (node.place - 1))
            verb = ["scancel"] if node.ended() else ["scontrol", "requeue"]
            subprocess.run([*verb, node.env["SLURM_JOB_ID"]], check=False)
            break
        time.sleep(LOOK_S)
    return agent.returncode if agent.returncode >= 0 else 128 - agent.returncode


def reason_to_leave(node: Node) -> str:
    until = float(node.env.get("MOTLEY_LEAVE_AT") or "inf")
    if time.time() > until:
        return "its time is nearly over"
    with contextlib.suppress(OSError, ValueError):
        facts = json.loads(node.status.read_text())
        if facts.get("state") == "waiting" and time.time() - float(facts["since"]) > WAIT_S:
            return "too few nodes are left to go on"
    return ""
