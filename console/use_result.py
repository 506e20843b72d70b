"""What a run has made, used where it lies: ask it, measure it, take it elsewhere. The node's `python -m train` does it.

python -m console ask|eval|export [--run NAME] [--inventory FOLDER]
"""

from __future__ import annotations

import subprocess
import sys

from console import interrupt
from console.infra.choose import from_inventory
from console.infra.node import Node, Silent, ask_all
from console.inventory.finding import nearest
from console.inventory.read import Inventory
from console.status import gathered, say

TRAIN = "fix: make runs shows what there is; make launch MODEL=… trains one"


class NowhereToAsk(Exception):
    """Why no node can do it, and what to do."""


def on_a_node(inventory: Inventory, run: str, verb: list[str], *, more: list[str], offline: bool = True) -> int:
    """Its output and our input pass through as they are."""
    try:
        run, node = choose(from_inventory(inventory), run)
        say(f"run {run} · on {node.name}")
        environment = {"HF_HUB_OFFLINE": "1"} if offline else {}
        command = node.train([*verb, "--run", run, "--home", ".", *more], environment)
    except (NowhereToAsk, Silent) as reason:
        say(str(reason))
        return 1
    with subprocess.Popen(command) as process:
        try:
            return process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return interrupt.CODE


def ask(inventory: Inventory, run: str, question: str, answer_tokens: str) -> int:
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    if question:
        more = ["--question", question]
    else:
        more = ["--prompt"] if typed else []
        if typed:
            say("each question stands for itself; end: an empty line")
    if answer_tokens:
        more += ["--answer-tokens", answer_tokens]
    return on_a_node(inventory, run, ["ask"], more=more)


def choose(nodes: list[Node], run: str) -> tuple[str, Node]:
    """The newest run that is done, where none is named; the first node that has it and does nothing else."""
    answers, silent = ask_all(nodes, lambda node: node.runs())
    away = [f"{name}  {reason}" for name, reason in silent.items()]
    found = gathered(answers)
    done = [name for name, facts in found.items() if facts["done"]]
    if not run and not done:
        raise NowhereToAsk("\n  ".join(["no node that answers has a run that is done", *away, TRAIN]))
    run = run or done[0]
    if run not in found:
        close = nearest(run, found, otherwise=f"there are: {', '.join(found)}") if found else TRAIN
        raise NowhereToAsk("\n  ".join([f"there is no run '{run}'", close, *away]))
    if run not in done:
        step, steps = found[run]["step"], found[run]["steps"] or "?"
        fix = "wait for its end" if found[run]["on"] else f"resume it: make launch RESUME={run}"
        raise NowhereToAsk(f"run {run} is at step {step} of {steps}, and its adapter is written at the end\nfix: {fix}")
    have = [node for node in nodes if answers.get(node.name, {}).get("runs", {}).get(run, {}).get("done")]
    idle = [node for node in have if not answers[node.name]["on"]]
    if not idle:
        on = answers[have[0].name]["on"]
        raise NowhereToAsk(f"run {on} is running there and needs the memory\nfix: wait for its end, or make stop")
    return run, idle[0]
