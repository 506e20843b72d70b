"""A driver that was installed waits for a restart: asks whoever sits there, machine by machine, and continues.

Without a terminal nobody is asked and nothing restarts (--reboot yes is the answer there). Covered by
tests/roles/test_gpu_driver.py on a pseudo-terminal.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from console.playbook import interrupt, run_playbook
from console.playbook.ask_passwords import Passwords
from console.playbook.playbook_progress import Progress

YES = ("y", "yes")
STOPPED = "Stop where nobody has allowed a restart"  # roles/motley_gpu_driver/tasks/restart.yml


def run(request: run_playbook.PlaybookRun, passwords: Passwords) -> int:
    progress = Progress()
    code = run_playbook.run(request, passwords, progress)
    if code == interrupt.CODE:
        return code
    try:
        willing = ask(waiting(progress))
    except KeyboardInterrupt:
        print(f"\nstopped: what was done stays, the restart is still to come. Again: {request.command}", flush=True)
        return interrupt.CODE
    if not willing:
        return code
    variables = {**request.variables, "motley_gpu_driver_may_restart": willing}
    return run_playbook.run(replace(request, variables=variables), passwords)


def waiting(progress: Progress) -> dict[str, str]:
    """The nodes that stopped for want of a yes and for nothing else, each with what must be known before that yes."""
    failed = [(node.name, node.phases[node.failed]) for node in progress.nodes.values() if node.failed]
    stopped = {name: phase.failure for name, phase in failed if phase.failed_task == STOPPED and phase.failure}
    return {name: " ".join(cause.what.splitlines()[1:]) for name, cause in stopped.items()}


def ask(nodes: dict[str, str]) -> list[str]:
    """Which of them may restart now; whatever is not a yes is a no."""
    if not sys.stdin.isatty():
        return []
    questions = {node: " ".join([f"restart {node} now?", *([note] if note else [])]) for node, note in nodes.items()}
    try:
        return [node for node, question in questions.items() if input(f"{question} [y/N] ").strip().lower() in YES]
    except EOFError:
        return []
