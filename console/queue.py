"""The queue of runs: show it, change its order, take a run out; and what a launch with queue=true puts into it.

python -m console queue [--move RUN --to N] [--remove RUN] [--inventory FOLDER]

The queue is on the nodes, which hand it on among themselves. Whoever changes it here asks all of them what they know,
changes that, and gives it to all that answer; the others learn of it from those (docs/inside/queue.md).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field

from console.infra import Facts, infra_of
from console.infra.node import Node, ask_all, from_hostvars, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt
from console.text_layout import counted, first, say
from plugins.module_utils.motley.node_replies import Queued, Stopped
from train.errors import BadInput
from train.runlog.queue_order import End, Entry, Queue, Refused, merged, names_of

Change = Callable[[Queue], Queue]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What all nodes together know of the queue."""

    queue: Queue
    answers: dict[str, Queued] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, nodes: Sequence[Node]) -> Asked:
        answers, silent = ask_all(nodes, lambda node: node.queue())
        known = merged(Queue.of_json(answer["queue"]) for answer in answers.values())
        return cls(queue=known, answers=answers, silent=silent)


def queue(inventory: Inventory, *, move: str, to: int, remove: str, as_json: bool) -> int:
    if (move and remove) or bool(move) != bool(to):
        raise BadInput("one change at a time", fix="fix: ./motley queue --move RUN --to N, or --remove RUN")
    nodes = from_inventory(inventory)
    asked = Asked.of(nodes)
    if not asked.answers:
        say("\n".join(["no node answers:", *(f"  {name}  {why}" for name, why in asked.silent.items())]))
        return 1
    if move or remove:
        change: Change = (
            (lambda queue: queue.moved(move, to)) if move else (lambda queue: queue.without(remove, time.time()))
        )
        queue, silent = changed(nodes, asked, change)
        asked = Asked(queue=queue, answers=asked.answers, silent=silent)
    if as_json:
        say(json.dumps({"queue": [asdict(row) for row in rows_of(asked)], "silent": asked.silent}))
    else:
        for line in lines(asked):
            say(line)
    return 1 if (move or remove) and asked.silent else 0


def changed(nodes: Sequence[Node], asked: Asked, change: Change) -> tuple[Queue, dict[str, str]]:
    """The queue after a change that all nodes that answer have taken in, and those that did not."""
    try:
        queue = change(asked.queue)
    except Refused as why:
        raise BadInput(str(why)) from None
    with interrupt.changing():
        _, silent = ask_all(nodes, lambda node: node.queue(queue.to_json()))
    return queue, silent


# -- what a launch puts into it ----------------------------------------------------------------------------------------


def put(known: Facts) -> Facts:
    """The run that was launched, behind all others. Inside Ansible, for all hosts of the play at once."""
    hostvars, plan = known["hostvars"], known["motley_plan_decided"]["plan"]
    nodes = from_hostvars(known["groups"]["cluster"], hostvars)  # also those without a part in it
    asked = Asked.of(nodes)
    entry = Entry(
        launch=str(known["motley_render_done"]["launch"]),
        run=str(plan["run"]),
        nodes=tuple((str(node["name"]), str(node["address"])) for node in plan["nodes"]),
        added=round(time.time(), 3),
    )
    try:
        queue = with_key(asked.queue).added(*running(asked), entry)
    except Refused as why:
        raise BadInput(str(why)) from None
    text = queue.to_json()

    def why_not_taken(node: Node) -> str:
        if node.name not in entry.names:
            node.queue(text)
            return ""
        managed = bool(hostvars[node.name].get("motley_manage_host", True))
        return node.enqueue(text, entry.launch, managed=managed).get("failed", "")

    refused, silent = ask_all(nodes, why_not_taken)
    not_taken = {name: why for name, why in (silent | refused).items() if why and name in entry.names}
    if not_taken:
        refusals = "\n".join(f"{name}: {why}" for name, why in not_taken.items())
        raise BadInput(f"{refusals}\nfix: ./motley queue --remove {entry.run}, then launch it again")
    queued = {"run": entry.run, "nodes": list(entry.names), "after": [one.run for one in ahead_of(entry, queue)]}
    return {"changed": True, "motley_lines": [placed(queue, entry)], "launched": {"queued": queued}}


def with_key(queue: Queue) -> Queue:
    return queue if queue.key else queue.merged(Queue(key=secrets.token_hex(16)))


def running(asked: Asked) -> list[Entry]:
    """The running run, where it was launched without the queue: from now on it is the first of the queue."""
    for answer in asked.answers.values():
        if answer["launch"] and asked.queue.of(answer["launch"]) is None:
            nodes = tuple((str(name), str(address)) for name, address in answer["nodes"])
            return [Entry(launch=answer["launch"], run=answer["run"], nodes=nodes, added=round(time.time(), 3))]
    return []


def ahead_of(entry: Entry, queue: Queue) -> list[Entry]:
    waiting = queue.waiting()
    return waiting[: [one.launch for one in waiting].index(entry.launch)]


def placed(queue: Queue, entry: Entry) -> str:
    if not (ahead := ahead_of(entry, queue)):
        return f"{entry.run} begins now   watch it: ./motley follow   the queue: ./motley queue"
    what = f"begins by itself when {names_of(ahead)} {'has' if len(ahead) == 1 else 'have'} ended"
    return f"{entry.run} waits: it {what}, also without this computer   the queue: ./motley queue"


# -- what a stop does to it --------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Stop:
    """How a node ends the running run, for good or for the next of the queue; and what people are told of it."""

    stop: Callable[[Node], Stopped] = lambda node: node.stop()
    words: Sequence[str] = ()


def stopped(inventory: Inventory, nodes: Sequence[Node], *, all_of_it: bool) -> Stop:
    """Ends the run whose turn it is, or all that wait, in the queue; then the nodes are to leave it."""
    if any("queue" in infra_of(values).lacks for values in inventory.nodes.values()):
        return Stop()
    asked = Asked.of(nodes)
    waiting = asked.queue.waiting()
    if not waiting:
        return Stop()
    turn, *rest = waiting
    queue = asked.queue.ended(turn.launch, End(how="stopped", time=round(time.time(), 3), reason="by ./motley stop"))
    if all_of_it:
        for waiting_run in rest:
            queue = queue.without(waiting_run.run, round(time.time(), 3))
    text = queue.to_json()
    if following := queue.waiting():
        words = f"next in the queue: {names_of(following)}   to stop all of it: ./motley stop --all"
        return Stop(stop=lambda node: node.leave(text, turn.launch), words=[words])

    def stop(node: Node) -> Stopped:
        left = node.leave(text, turn.launch)  # it ends by itself, as nothing waits any more
        after = node.stop()
        return {**after, **left, "left": after["left"], "ports": after["ports"]} if left["was_on"] else after

    return Stop(stop=stop, words=[f"taken out of the queue: {names_of(rest)}"] if rest else [])


# -- what it shows -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Row:
    """A run of the queue as people see it, and as --json prints it."""

    run: str
    nodes: list[str]
    since: float
    state: str
    why: str


def rows_of(asked: Asked) -> list[Row]:
    """The runs that wait, in their order; then those that have ended, the newest first."""
    waiting = asked.queue.waiting()
    over = [entry for entry in asked.queue.entries if entry.end]
    over.sort(key=lambda entry: -entry.end.time if entry.end else 0.0)
    return [_row(asked, entry, waiting) for entry in [*waiting, *over]]


def _row(asked: Asked, entry: Entry, waiting: list[Entry]) -> Row:
    def row(state: str, why: str, since: float = entry.added) -> Row:
        return Row(run=entry.run, nodes=list(entry.names), since=since, state=state, why=why)

    if entry.end:
        return row(entry.end.how, entry.end.reason, entry.end.time)
    if entry is not waiting[0]:
        before = waiting[waiting.index(entry) - 1]
        return row("waits", f"until {before.run} has ended")
    views = [answer["now"] for answer in asked.answers.values() if answer["launch"] == entry.launch and answer["now"]]
    if not views:
        away = [name for name in entry.names if name in asked.silent]
        why = f"no answer from {', '.join(away)}" if away else "its machines have not begun yet"
        return row("waits", why)
    view = max(views, key=lambda view: (view["state"] == "training", view.get("step") or 0))
    why = f"step {view['step']}" if view["state"] == "training" else first(view.get("reason") or "")
    return row(view["state"], why, view.get("since") or entry.added)


def lines(asked: Asked) -> list[str]:
    waits = len(asked.queue.waiting())
    table = [
        (
            str(number) if number <= waits else "",
            row.run,
            row.state,
            f"since {_when(row.since)}" if number <= waits else _when(row.since),
            ", ".join(row.nodes),
            first(row.why) if row.why else "",
        )
        for number, row in enumerate(rows_of(asked), 1)
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    shown = ["  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    head = counted(waits, "run") + (" in the queue" if waits else " in the queue; add one: ./motley launch --queue …")
    silent = [f"  {name}  {why}: it learns of the queue from the others" for name, why in asked.silent.items()]
    return [head, *(f"  {line}" for line in shown), *silent]


def _when(at: float) -> str:
    day = "%H:%M" if time.localtime(at)[:3] == time.localtime()[:3] else "%Y-%m-%d %H:%M"
    return time.strftime(day, time.localtime(at))
