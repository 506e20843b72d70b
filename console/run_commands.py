"""What is done to a run while it is there: follow, logs, stop, and clean after its end. Every verb goes to the nodes.

python -m console follow|logs|stop|clean [--inventory FOLDER]
"""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
import time
from typing import Any

from console import live_view
from console.infra.choose import from_inventory
from console.infra.node import Node, Silent, ask_all
from console.inventory.read import Inventory
from console.processes import end_group
from console.run_in_words import RunView
from console.status import gathered, runs_of, status_lines
from train.runlog.state import RunState
from train.safe_stdio import unread

say = functools.partial(print, flush=True)


def follow(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    running = {name: look for name, look in answers.items() if look["on"]}
    if not running:
        for line in status_lines([node.name for node in nodes], answers, silent):
            say(line)
        return 1
    run = runs_of(running)[0]
    order = list(next(iter(running.values()))["now"].get("peers") or {})
    order = [node.name for node in nodes if node.name in {*running, *order}]
    since = {name: float(look["since"]) for name, look in answers.items()}
    return show(nodes, RunView(RunState(run=run), order, since))


def logs(inventory: Inventory, only: list[str], *, lines: int = 200, following: bool = True) -> int:
    """Every node's lines behind its name, as they come."""
    nodes = [node for node in from_inventory(inventory) if not only or node.name in only]
    width = max(len(node.name) for node in nodes)
    lock, processes, threads = threading.Lock(), [], []
    for node in nodes:
        try:
            process = node.logs(lines, follow=following)
        except Silent as reason:
            say(f"{node.name:<{width}}  {reason}")
            continue
        processes.append(process)
        threads.append(threading.Thread(target=_prefix, args=(process, f"{node.name:<{width}}", lock), daemon=True))
        threads[-1].start()
    try:
        while not unread() and any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            end_group(process)
    return 0 if processes else 1


def _prefix(process: subprocess.Popen[bytes], name: str, lock: threading.Lock) -> None:
    assert process.stdout
    for line in process.stdout:
        with lock:
            say(f"{name}  {line.decode(errors='replace').rstrip()}")


def stop(inventory: Inventory) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.stop())
    for line in stop_lines([node.name for node in nodes], answers, silent):
        say(line)
    return 1 if silent or any(answer["left"] or answer["ports"] for answer in answers.values()) else 0


def stop_lines(names: list[str], answers: dict[str, Any], silent: dict[str, str]) -> list[str]:
    was = [answer for answer in answers.values() if answer["was_on"]]
    width = max(map(len, names))
    lines = []
    for name in names:
        if name in silent:
            lines.append(f"  {name:<{width}}  {silent[name]}: not stopped there; if it comes back: make stop")
        else:
            answer = answers[name]
            processes, ports = len(answer["left"]), answer["ports"]
            left = f"{processes} processes and ports {ports} are left" if processes else "nothing left"
            forced = f" · {answer['forced']} had to be killed" if answer["forced"] else ""
            saved = f"checkpoint {answer['checkpoint']} · " if answer["was_on"] else "no run was running · "
            lines.append(f"  {name:<{width}}  {saved}{left}{forced} · {answer['seconds']:.1f} s")
    if not was:
        return ["no run was running", *lines]
    step = max(answer["checkpoint"] for answer in was)
    return [f"run {was[0]['run']} stopped at step {step} · resume it: make launch RESUME={was[0]['run']}", *lines]


def clean(inventory: Inventory, chosen: list[str], *, yes: bool) -> int:
    """Checkpoints of runs that are done, or of those that are named. Results and event logs stay."""
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.runs())
    found = gathered(answers)
    unknown = [name for name in chosen if name not in found]
    if unknown:
        say(f"there is no run '{unknown[0]}' on a node that answers; there are: {', '.join(found) or 'none'}")
        return 2
    names = [
        name
        for name, facts in found.items()
        if not facts["on"] and facts["bytes"] and (name in chosen if chosen else facts["done"])
    ]
    if not names:
        say("there is nothing to clean: no checkpoints of a run that is done (others by name: RUN=NAME)")
        return 0
    for name in names:
        facts = found[name]
        note = "" if facts["done"] else "   it is not done: it could not be resumed after this"
        say(f"  {name}  step {facts['step']}  {facts['bytes'] / 1e6:.0f} MB on {', '.join(facts['nodes'])}{note}")
    if not yes and not (sys.stdin.isatty() and input("delete these checkpoints? [y/N] ").lower() in ("y", "yes")):
        say("nothing was deleted (without a terminal: YES=1)")
        return 1
    freed, _ = ask_all([node for node in nodes if node.name in answers], lambda node: node.clean(names))
    total = sum(size for answer in freed.values() for size in answer["freed"].values())
    say(f"{total / 1e6:.0f} MB freed on {len(freed)} of {len(nodes)} nodes; results and event logs are kept")
    for name, reason in silent.items():
        say(f"  {name}  {reason}")
    return 0


def show(nodes: list[Node], view: RunView, *, until_proven: bool = False) -> int:
    try:
        ended = live_view.watch(nodes, view, say, terminal=sys.stdout.isatty(), until_proven=until_proven)
    except KeyboardInterrupt:
        say(live_view.DETACHED)
        return 0
    if ended and not ended.ok:
        for line in ended.lines:
            say(f"✗ {line}" if line == ended.lines[0] else f"  {line}")
        return 1
    return 0
