"""A driver that was installed waits for a restart: asks whoever sits there, machine by machine, and goes on.

Without a terminal nobody is asked and nothing restarts (REBOOT=yes is the answer there). Covered by
tests/roles/test_gpu_driver.py on a pseudo-terminal.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from console import interrupt, play
from console.progress import Progress

STOPPED = "Stop where nobody has allowed a restart"  # roles/motley_gpu_driver/tasks/restart.yml


def run(wish: play.Wish, passwords: play.Passwords) -> int:
    progress = Progress()
    code = play.run(wish, passwords, progress)
    try:
        willing = ask(waiting(progress))
    except KeyboardInterrupt:
        print(f"\nstopped: what was done stays, the restart is still to come. Again: {wish.command}", flush=True)
        return interrupt.CODE
    if not willing:
        return code
    return play.run(replace(wish, variables={**wish.variables, "motley_gpu_driver_may_restart": willing}), passwords)


def waiting(progress: Progress) -> list[str]:
    """The nodes that stopped for want of a yes, and for nothing else."""
    failed = [(node.name, node.phases[node.failed]) for node in progress.nodes.values() if node.failed]
    return [name for name, phase in failed if phase.failed_task == STOPPED]


def ask(nodes: list[str]) -> list[str]:
    """Which of them may restart now; whatever is not a yes is a no."""
    if not sys.stdin.isatty():
        return []
    try:
        return [node for node in nodes if input(f"restart {node} now? [y/N] ").strip().lower() in ("y", "yes")]
    except EOFError:
        return []
