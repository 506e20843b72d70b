"""Runs playbooks/launch.yml or plan.yml, and shows the run that was started. Other playbooks: run_playbook.py."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from console.infra.node import ROOT, Node, Silent, ask_all, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt, playbook_answer
from console.processes import end_group
from console.report_to import fed
from console.run_commands import EventView, show, show_as_json
from console.text_layout import agreed, beside_data, say
from console.watch.run_in_words import RunView
from console.watch.status import runs_of
from plugins.module_utils.motley.node_replies import Look
from train.runlog.state import RunState

CHECKING = "checking your request …"


def plan(inventory: Inventory, words: list[str], *, as_json: bool = False) -> int:
    command = [*playbook_command(inventory, "playbooks/plan.yml"), *words]
    if not as_json:
        say(CHECKING)
    with playbook_answer.asked_for("plan") as answer:
        stdout = sys.stderr.fileno() if as_json else None
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=stdout, **answer.inherited())
        planned = answer.read()
    if planned and as_json:
        say(json.dumps(planned))
    return ours(done.returncode)


def ours(code: int) -> int:
    """Ansible's exit code as one of ours: 0, 1, 2 and 130. It has others, such as 4 where a machine did not answer."""
    return code if code in (0, 2, interrupt.CODE) else 1


def playbook_command(inventory: Inventory, playbook: str) -> list[str]:
    return [sys.executable, "-m", "console.playbook.ansible_playbook", "-i", str(inventory.path.resolve()), playbook]


def launch(
    inventory: Inventory,
    words: list[str],
    *,
    as_json: bool = False,
    following: bool = False,
    page: bool = False,
    report_to: str = "",
) -> int:
    """Runs the playbook up to the start, in its own lines; then shows the live view, for which it needs a terminal.

    As data: what was started, or where it stands in the queue; with `following` each event of the run.
    `page`: beside it as a live page too. `report_to`: its curves go there as long as somebody watches.
    """
    started = started_by(inventory, "playbooks/launch.yml", words, as_json=as_json)
    if isinstance(started, int):
        return started
    if "queued" in started:  # the playbook has said in words when it begins
        if as_json:
            say(json.dumps({"event": "queued"} | started["queued"]))
        return 0
    about = RunState(run=started["run"]), started["nodes"], started["since"]
    nodes = [node for node in from_inventory(inventory) if node.name in started["nodes"]]
    if as_json:
        say(json.dumps({"event": "started", "run": started["run"], "nodes": started["nodes"]}))
        return show_as_json(nodes, EventView(*about)) if following else 0
    with (
        live_page(inventory, started["run"]) if page else contextlib.nullcontext(),
        fed(inventory, started["run"], report_to if started["follow"] else ""),
    ):
        return show(nodes, RunView(*about), until_proven=not started["follow"])


PAGE_ENDS_S = 10.0
"""The page waits for its own readers of the nodes first."""


@contextlib.contextmanager
def live_page(inventory: Inventory, run: str) -> Iterator[None]:
    """./motley dashboard as long as somebody watches; where it cannot be had, it says so, and the run continues."""
    command = [sys.executable, "-m", "console", "dashboard", "--inventory", str(inventory.path), "--run", run]
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    page = subprocess.Popen(command, cwd=ROOT, text=True, start_new_session=True, **both)  # type: ignore[call-overload]
    try:
        line = page.stdout.readline().strip()
        say(f"live page: {line}" if line.startswith("http") else f"no live page: {line}   later: ./motley dashboard")
        yield
    finally:
        page.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            page.communicate(timeout=PAGE_ENDS_S)
        end_group(page)
        page.stdout.close()


WHAT_FOLLOWS = {"suspend": "go to sleep", "poweroff": "are switched off"}


def agreed_to(inventory: Inventory, names: Sequence[str], then: str, *, yes: bool) -> bool:
    """Whoever works at one of the machines by then would lose it: that is asked before."""
    chosen = [name for name in inventory.nodes if not names or name in names]
    say(f"a minute after the run {', '.join(chosen)} {WHAT_FOLLOWS[then]}, unless somebody has paused or uses one")
    if yes or agreed("is that meant?"):
        return True
    say("nothing was started (without a terminal: --yes)")
    return False


def started_by(inventory: Inventory, name: str, words: list[str], *, as_json: bool = False) -> dict[str, Any] | int:
    """What this playbook has started; or its exit code, where it has started nothing."""
    with playbook_answer.asked_for("launched") as answer:
        mark = interrupt.new_mark()
        if not as_json:
            say(CHECKING)
        playbook = subprocess.Popen(
            [*playbook_command(inventory, name), *words],
            cwd=ROOT,
            stdout=sys.stderr.fileno() if as_json else None,
            **answer.inherited(**{interrupt.MARK: mark}),
        )
        try:
            code = playbook.wait()
        except KeyboardInterrupt:
            if interrupt.end_in_order(playbook, mark) != interrupt.CODE:  # otherwise it has reported it itself
                with interrupt.changing():
                    answers, silent = ask_all(from_inventory(inventory), left_on)
                with beside_data(as_json=as_json):
                    for line in interrupted_lines(answers, silent):
                        say(line)
            return interrupt.CODE
        launched: dict[str, Any] | None = answer.read()
    return ours(code) if code or launched is None else launched


def left_on(node: Node) -> Look:
    """The node's status, once what it has begun to load for this launch is gone."""
    with contextlib.suppress(Silent):  # elsewhere nothing loads early
        node.unload()
    return node.status()


def interrupted_lines(answers: dict[str, Look], silent: dict[str, str]) -> list[str]:
    """What a launch that was stopped before it could show the run has left."""
    running = {name: look for name, look in answers.items() if look["on"]}
    lines = [f"{name}  {reason}: whether it runs there, ./motley status shows later" for name, reason in silent.items()]
    if not running:
        return ["interrupted: no run was started; what was brought to the nodes stays there   again: the same", *lines]
    runs = " and ".join(f"'{run}'" for run in runs_of(running))
    return [
        f"interrupted: {runs} is running on {', '.join(running)}   watch it: ./motley follow   stop it: ./motley stop",
        *lines,
    ]
