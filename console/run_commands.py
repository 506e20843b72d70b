"""What is done to a run while it is there: follow, logs, stop, and clean after its end. Every verb goes to the nodes.

python -m console follow|logs|stop|clean [--inventory FOLDER]
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from functools import partial

from console import notice_address, queue
from console.infra.node import Node, Silent, ask_all, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt
from console.processes import each_line, end_group
from console.text_layout import agreed, detached, say
from console.torchrun import script_view
from console.watch import follow_view
from console.watch.follow import Follower
from console.watch.run_in_words import RunView
from console.watch.status import gathered, is_script, runs_of, status_lines
from plugins.module_utils.motley.node_replies import Stopped
from train.runlog.state import Change, RunState
from train.safe_stdio import unread


def follow(inventory: Inventory, *, as_json: bool = False) -> int:
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.status())
    running = {name: look for name, look in answers.items() if look["on"]}
    if not running:
        for line in status_lines([node.name for node in nodes], answers, silent):
            print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
        return 1
    run = runs_of(running)[0]
    if any(is_script(look) for look in running.values()):
        return script_view.follow(nodes, run, answers, as_json=as_json)
    nodes.sort(key=lambda node: node.name not in running)  # one that trains is read from first
    order = list(next(iter(running.values()))["now"].get("peers") or {})
    order = [node.name for node in nodes if node.name in {*running, *order}]
    since = {name: float(look["since"]) for name, look in answers.items()}
    if as_json:
        return show_as_json(nodes, EventView(RunState(run=run), order, since))
    return show(nodes, RunView(RunState(run=run), order, since))


def logs(inventory: Inventory, limit: list[str], *, lines: int = 200, no_follow: bool = False) -> int:
    """Shows every node's lines behind its name, as they come."""
    nodes = [node for node in from_inventory(inventory) if not limit or node.name in limit]
    width = max(len(node.name) for node in nodes)
    lock, processes, threads = threading.Lock(), [], []
    for node in nodes:
        try:
            process = node.logs(lines, follow=not no_follow)
        except Silent as reason:
            say(f"{node.name:<{width}}  {reason}")
            continue
        processes.append(process)
        threads.append(each_line(process, partial(_show, f"{node.name:<{width}}", lock)))
    try:
        while not unread() and any(thread.is_alive() for thread in threads):
            time.sleep(0.1)
    except KeyboardInterrupt:
        pass
    finally:
        for process in processes:
            end_group(process)
    return 0 if processes else 1


def _show(name: str, lock: threading.Lock, line: bytes) -> None:
    if line:
        with lock:
            say(f"{name}  {line.decode(errors='replace').rstrip()}")


def stop(inventory: Inventory, *, whole_queue: bool = False) -> int:
    nodes = from_inventory(inventory)
    after = queue.stopped(inventory, nodes, all_of_it=whole_queue)
    with interrupt.changing():
        answers, silent = ask_all(nodes, after.stop)
    for line in [*stop_lines([node.name for node in nodes], answers, silent), *after.words]:
        say(line)
    return 1 if silent or any(answer["left"] or answer["ports"] for answer in answers.values()) else 0


def stop_lines(names: list[str], answers: Mapping[str, Stopped], silent: dict[str, str]) -> list[str]:
    was = [answer for answer in answers.values() if answer["was_on"]]
    script = any(answer.get("script") for answer in was)
    width = max(map(len, names))
    lines = []
    for name in names:
        if name in silent:
            lines.append(f"  {name:<{width}}  {silent[name]}: not stopped there; if it comes back: ./motley stop")
        else:
            answer = answers[name]
            forced = f" · {answer['forced']} had to be killed" if answer["forced"] else ""
            kept = "" if script else f"checkpoint {answer['checkpoint']} · "
            saved = kept if answer["was_on"] else "no run was running · "
            also = f" · also there: {others}; the next stop ends it" if (others := answer.get("others")) else ""
            lines.append(f"  {name:<{width}}  {saved}{_left(answer)}{forced} · {answer['seconds']:.1f} s{also}")
    if not was:
        return ["no run was running" if answers else "no node answers", *lines]
    if script:
        return [f"{was[0]['run']} stopped; its own last save stays on the nodes", *lines]
    step = max(answer["checkpoint"] for answer in was)
    return [f"run {was[0]['run']} stopped at step {step} · resume it: ./motley launch --resume {was[0]['run']}", *lines]


def _left(answer: Stopped) -> str:
    """What outlived a stop, and what ends that."""
    if kept := answer.get("kept"):
        return f"kept for fetch: {kept}; when you have it: {answer['program']} delete {kept}"
    if "stuck" in answer and (left := answer["left"]):
        names = [str(name) for name in left]
        fix = answer["stuck"] or f"fix: {answer['program']} delete {' '.join(names)}"
        return f"still there: {', '.join(names)}; {fix}"
    kinds = {"process": answer["left"], "port": answer["ports"]}
    still = [f"{kind} {', '.join(map(str, which))}" for kind, which in kinds.items() if which]
    return f"still there: {' and '.join(still)}; if that stays so, restart this machine" if still else "nothing left"


def clean(inventory: Inventory, run: str, *, yes: bool) -> int:
    """Deletes checkpoints of runs that are done, or of those that are named. Results and event logs stay."""
    named = run.replace(",", " ").split()
    nodes = from_inventory(inventory)
    answers, silent = ask_all(nodes, lambda node: node.runs())
    runs = gathered(answers)
    unknown = [name for name in named if name not in runs]
    if unknown:
        say(f"there is no run '{unknown[0]}' on a node that answers; there are: {', '.join(runs) or 'none'}")
        return 2
    if running := [name for name in named if runs[name]["on"]]:
        say(f"run '{running[0]}' is running, and keeps its checkpoints\nfix: ./motley stop, then the same again")
        return 2
    names = [
        name
        for name, facts in runs.items()
        if not facts["on"] and facts["bytes"] and (name in named if named else facts["done"])
    ]
    if not names:
        forget_address(inventory, nodes)
        say("there is nothing to clean: no checkpoints of a run that is done (others by name: --run NAME)")
        return 0
    for name in names:
        facts = runs[name]
        note = "" if facts["done"] else "   it is not done: it could not be resumed after this"
        say(f"  {name}  step {facts['step']}  {facts['bytes'] / 1e6:.0f} MB on {', '.join(facts['nodes'])}{note}")
    if not yes and not agreed("delete these checkpoints?"):
        say("no checkpoint was deleted (without a terminal: --yes)")
        forget_address(inventory, nodes)
        return 1
    with interrupt.changing():
        freed, _ = ask_all([node for node in nodes if node.name in answers], lambda node: node.clean(names))
        forget_address(inventory, nodes)
    total = sum(size for answer in freed.values() for size in answer["freed"].values())
    say(f"{total / 1e6:.0f} MB freed on {len(freed)} of {len(nodes)} nodes; results and event logs are kept")
    for name, reason in silent.items():
        say(f"  {name}  {reason}")
    return 0


def forget_address(inventory: Inventory, nodes: list[Node]) -> None:
    """Deletes the address of motley_notify where the inventory has none any more."""
    if notice_address.written(inventory):
        return
    with interrupt.changing():
        answers, _ = ask_all(nodes, lambda node: node.forget_address())
    if deleted_on := [name for name, answer in answers.items() if answer["was"]]:
        say(f"the address of motley_notify was deleted on {', '.join(deleted_on)}")


def show(nodes: list[Node], view: RunView, *, until_proven: bool = False) -> int:
    try:
        ended = follow_view.watch(nodes, view, say, terminal=sys.stdout.isatty(), until_proven=until_proven)
    except KeyboardInterrupt:
        say(detached("run"))
        return 0
    if ended and not ended.ok:
        first, *rest = ended.lines
        for line in [f"✗ {first}", *(f"  {line}" for line in rest)]:
            say(line)
        return 1
    return 0


class EventView(RunView):
    """A view whose lines are the events themselves."""

    def _lines(self, change: Change) -> list[str]:
        super()._lines(change)  # which also notes the end
        return [json.dumps(change.event)]


def show_as_json(nodes: list[Node], view: EventView) -> int:
    """Prints each event once, as a line, whichever nodes it is read from; the last says how the run ended."""

    def show_event(line: str) -> None:
        say(line if line.startswith("{") else json.dumps({"event": "note", "words": line}))

    def leave_when_unread() -> None:
        if unread():
            raise KeyboardInterrupt

    try:
        ended = Follower(nodes, view, show_event, leave_when_unread).follow()
    except KeyboardInterrupt:
        return interrupt.CODE
    assert ended
    say(json.dumps({"event": "result", "run": view.state.run, "ok": ended.ok, "words": ended.lines}))
    return 0 if ended.ok else 1
