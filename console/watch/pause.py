"""Machines that somebody needs for something else: pause takes them out of a run, unpause lets them come back.

python -m console pause|unpause [--inventory FOLDER] NODE [--for 2h]
"""

from __future__ import annotations

from console.infra.node import Node, ask_all, from_inventory
from console.inventory.read import Inventory
from console.playbook import interrupt
from console.text_layout import say
from train import pause as pauses
from train.errors import BadInput


def pause(inventory: Inventory, limit: list[str], *, lasts: str) -> int:
    if lasts and pauses.seconds(lasts) is None:
        raise BadInput(f"for: '{lasts}' is not a time", fix="for example: --for 2h, or --for 90m")
    if not limit:
        fix = f"./motley pause --nodes {list(inventory.nodes)[-1]}"
        raise BadInput("which machine do you need?", f"nodes: {', '.join(inventory.nodes)}", fix)
    nodes = chosen(inventory, limit)
    with interrupt.changing():
        answers, silent = ask_all(nodes, lambda node: node.pause(lasts))
    width = max(len(node.name) for node in nodes)
    good = True
    for node in nodes:
        answer = answers.get(node.name, {"failed": silent.get(node.name, "")})
        first, *rest = str(answer.get("failed", "")).splitlines() or [""]
        if first:
            words = " · ".join([f"not paused: {first}", *rest])
        elif answer["left"]:
            words = f"paused {answer['until']}, but processes {answer['left']} are still there: see ./motley logs"
        else:
            freed = f"its memory is free after {answer['seconds']:.1f} s" if answer["was_on"] else "no run is running"
            words = f"paused {answer['until']} · {freed}"
        good = good and not first and not answer["left"]
        say(f"  {node.name:<{width}}  {words}")
    if paused := [name for name, answer in answers.items() if not answer.get("failed")]:
        say(f"the others continue without it; to bring it back: ./motley unpause --nodes {','.join(paused)}")
    return 0 if good else 1


def unpause(inventory: Inventory, limit: list[str]) -> int:
    nodes = chosen(inventory, limit)
    with interrupt.changing():
        answers, silent = ask_all(nodes, lambda node: node.unpause())
    width = max(len(node.name) for node in nodes)
    for node in nodes:
        if node.name in silent:
            words = silent[node.name]
        elif answers[node.name]["was"]:
            words = f"may train again{'; it rejoins the run' if answers[node.name]['was_on'] else ''}"
        else:
            words = "was not paused"
        say(f"  {node.name:<{width}}  {words}")
    return 1 if silent else 0


def chosen(inventory: Inventory, limit: list[str]) -> list[Node]:
    return [node for node in from_inventory(inventory) if not limit or node.name in limit]
