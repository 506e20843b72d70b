"""Runs launch.yml or plan.yml, and shows the run that was started.

python -m console launch|plan [NAME=VALUE …] [--inventory FOLDER]
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from console import interrupt
from console.infra.choose import from_inventory
from console.infra.node import ask_all
from console.inventory.read import Inventory
from console.run_commands import show
from console.run_in_words import RunView
from console.status import runs_of
from train.runlog.state import RunState

ROOT = Path(__file__).parents[1]
say = functools.partial(print, flush=True)


def plan(inventory: Inventory, words: list[str]) -> int:
    return subprocess.run(
        [*playbook_command(inventory, "playbooks/plan.yml"), *words], cwd=ROOT, check=False
    ).returncode


def playbook_command(inventory: Inventory, playbook: str) -> list[str]:
    return [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(inventory.path.resolve()), playbook]


def launch(inventory: Inventory, words: list[str]) -> int:
    """The playbook up to the start, in its own lines; then the live view, for which it needs a terminal."""
    with tempfile.TemporaryDirectory(prefix="motley-") as folder:
        file = Path(folder) / "started.json"
        mark = interrupt.new_mark()
        playbook = subprocess.Popen(
            [*playbook_command(inventory, "launch.yml"), *words, "-e", f"motley_start_tell_in={file}"],
            cwd=ROOT,
            env=os.environ | {interrupt.MARK: mark},
        )
        try:
            code = playbook.wait()
        except KeyboardInterrupt:
            if interrupt.end_in_order(playbook, mark) != interrupt.CODE:  # otherwise it has reported it itself
                for line in interrupted_lines(*ask_all(from_inventory(inventory), lambda node: node.status())):
                    say(line)
            return interrupt.CODE
        if code or not file.exists():
            return code
        started = json.loads(file.read_text())
    view = RunView(RunState(run=started["run"]), started["nodes"], started["since"])
    nodes = [node for node in from_inventory(inventory) if node.name in started["nodes"]]
    return show(nodes, view, until_proven=not started["follow"])


def interrupted_lines(answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    """What a launch that was stopped before it could show the run has left behind."""
    running = {name: look for name, look in answers.items() if look["on"]}
    lines = [f"{name}  {reason}: whether it runs there, make status shows later" for name, reason in silent.items()]
    if not running:
        return ["interrupted: no run was started; what was brought to the nodes stays there   again: the same", *lines]
    runs = " and ".join(f"'{run}'" for run in runs_of(running))
    return [
        f"interrupted: {runs} is running on {', '.join(running)}   watch it: make follow   stop it: make stop",
        *lines,
    ]
