"""What a run has made, used where it lies: ask it, measure it, take it elsewhere. The node's `python -m train` does it;
of a run that was stopped, from its newest checkpoint.

python -m console ask|eval|export [--run NAME] [--inventory FOLDER]
"""

from __future__ import annotations

import base64
import codecs
import io
import json
import math
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import TextIO

from console import fetch_export, push
from console.infra.node import Node, Silent, ask_all, from_inventory
from console.inventory.read import Inventory
from console.inventory.what_is_wrong import nearest
from console.playbook import interrupt
from console.text_layout import say
from console.watch.status import gathered
from plugins.module_utils.motley.node_replies import Runs
from train.errors import BadInput
from train.plan.settings.picture_sets import SUFFIXES
from train.plan.settings.read_settings import RECIPES
from train.safe_stdio import plain

GGUF = "gguf"
IN_PIECES = {name for name, kind in RECIPES.items() if kind.IN_PIECES}
"""Recipes whose runs make no model."""
TRAIN = "fix: ./motley runs shows what there is; ./motley launch --model qwen3-0.6b --dataset stdlib-qa trains one"


class NowhereToAsk(Exception):
    """Why no node can do it, and what to do."""


def on_a_node(
    inventory: Inventory, run: str, verb: list[str], *, more: list[str], offline: bool = True, given: str = ""
) -> int:
    """Our input passes through as it is, but where it is `given` something; its output as a terminal may show it."""
    run_and_node = chosen(inventory, run)
    return works(*run_and_node, verb, more=more, offline=offline, given=given) if run_and_node else 1


def chosen(inventory: Inventory, run: str) -> tuple[str, Node] | None:
    """The run and the node that does it, as it says; or why none can."""
    try:
        homes = [part for node in from_inventory(inventory) for part in node.parts(run)]
        run, stopped, node = choose(homes, run)
    except (NowhereToAsk, Silent) as reason:
        say(str(reason))
        return None
    say(f"run {run}{stopped} · on {node.name}")
    return run, node


def works(
    run: str,
    node: Node,
    verb: list[str],
    *,
    more: Sequence[str] = (),
    offline: bool = True,
    given: str = "",
    out: TextIO | None = None,
) -> int:
    """Runs the verb there. `out`: who gets its output instead."""
    try:
        environment = {"HF_HUB_OFFLINE": "1"} if offline else {}
        command = node.train([*verb, "--run", run, "--home", ".", *more], environment)
    except Silent as reason:
        say(str(reason))
        return 1
    pipes = {"stdin": subprocess.PIPE if given else None, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, **pipes) as process, ThreadPoolExecutor(2) as pool:  # type: ignore[call-overload]
        try:
            pool.map(pass_on, (process.stdout, process.stderr), (out or sys.stdout, sys.stderr))
            if process.stdin:
                with suppress(BrokenPipeError), process.stdin:  # it may have ended without reading: its words say why
                    process.stdin.write(given.encode())
            return int(process.wait())
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return interrupt.CODE


def pass_on(pipe: BufferedReader, stream: TextIO) -> None:
    """Passes text on as it comes: a question waits for its answer on the same line."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    while part := pipe.read1():
        stream.write(plain(decode(part)))
        stream.flush()


def evaluate(inventory: Inventory, run: str) -> int:
    return on_a_node(inventory, run, ["eval"], more=[])


def export(inventory: Inventory, run: str, to: str, results: Path, *, quant: str = "", yes: bool = False) -> int:
    if quant and to != GGUF:
        raise BadInput(f"--quant {quant} is of a gguf: {to} is never quantised", fix=f"fix: --to {GGUF}, or no --quant")
    if to == GGUF:
        run_and_node = chosen(inventory, run)
        return bring_gguf(*run_and_node, quant, results) if run_and_node else 1
    if to.startswith(push.HUB):
        return push.push(to, run, results, next(iter(inventory.nodes.values()), {}), yes=yes)
    return on_a_node(inventory, run, ["export", to], more=[], offline=False)


def bring_gguf(run: str, node: Node, quant: str, results: Path) -> int:
    """Has it made where the run lies, and brings it here; what is there or here already is not made or sent again."""
    printed = io.StringIO()
    words = ["export", GGUF, *(["--quant", quant] if quant else []), "--json"]
    if code := works(run, node, words, offline=False, out=printed):
        return code
    export = json.loads(printed.getvalue().splitlines()[-1])
    return fetch_export.fetch(node, run, export, results)


def ask(inventory: Inventory, run: str, question: str, tokens: int) -> int:
    """Asks a question, or about a picture, which lies here and is sent along. `-`: the question is our input."""
    typed = sys.stdin.isatty() and sys.stdout.isatty()
    question = sys.stdin.read() if question == "-" else question
    try:
        question.encode()
    except UnicodeEncodeError:
        fix = "fix: iconv -f latin1 -t utf-8 FILE | ./motley ask --question -"
        raise BadInput("the question is not UTF-8", fix=fix) from None
    picture = Path(question)
    given = ""
    if picture.suffix.lower() in SUFFIXES and os.path.isfile(picture):  # noqa: PTH113 - it may be too long for a name
        given = base64.b64encode(picture.read_bytes()).decode()
        more = ["--question", picture.name, "--picture"]
    elif question:
        more, given = ["--question", "-"], question  # there, whoever is logged in may read the words of a command
    else:
        more = ["--prompt"] if typed else []
        if typed:
            say("each question stands for itself; end: an empty line")
    if tokens:
        more += ["--answer-tokens", str(tokens)]
    return on_a_node(inventory, run, ["ask"], more=more, given=given)


def choose(nodes: list[Node], run: str) -> tuple[str, str, Node]:
    """A run, where it was stopped, and the first node that has most of it and does nothing else."""
    usable = find(nodes, run)
    idle = [node for node in usable.have if not usable.answers[node.name]["on"]]
    if not idle:
        on = usable.answers[usable.have[0].name]["on"]
        raise NowhereToAsk(f"run {on} is running there and needs the memory\nfix: wait for its end, or ./motley stop")
    return usable.run, usable.stopped, idle[0]


@dataclass(frozen=True, slots=True)
class UsableRun:
    """A run that can be used."""

    run: str
    stopped: str
    """Where it was stopped; empty where it is done."""
    have: list[Node]
    """The nodes that have most of it."""
    answers: dict[str, Runs]
    silent: dict[str, str]


def find(nodes: list[Node], run: str) -> UsableRun:
    """Finds a run; where none is named it is the newest that has made a model, or has a checkpoint to go by."""
    answers, silent = ask_all(nodes, lambda node: node.runs())
    away = [f"{name}  {reason}" for name, reason in silent.items()]
    runs = gathered(answers)
    most = {name: max(made(answer, name) for answer in answers.values()) for name in runs}
    stopped = [name for name, facts in runs.items() if most[name] and facts["steps"] and not facts["on"]]
    usable = [
        name
        for name, facts in runs.items()
        if (facts["done"] or name in stopped) and not facts["script"] and facts["recipe"] not in IN_PIECES
    ]
    if run in runs and (script := runs[run]["script"]):
        what = f"{run} was a script of your own ({script}): Motley does not know what it made"
        raise NowhereToAsk(f"{what}\nfix: ./motley fetch --run {run}")
    if (recipe := runs[run]["recipe"] if run in runs else "") in IN_PIECES:
        raise NowhereToAsk(
            f"{run} has trained nothing (recipe={recipe})\nfix: ./motley fetch --run {run} brings what it made"
        )
    if not run and not usable:
        raise NowhereToAsk("\n  ".join(["no node that answers has a run with a result or a checkpoint", *away, TRAIN]))
    run = run or usable[0]
    if run not in runs:
        close = nearest(run, runs, otherwise=f"there are: {', '.join(runs)}") if runs else TRAIN
        raise NowhereToAsk("\n  ".join([f"there is no run '{run}'", close, *away]))
    at = f"at step {runs[run]['step']} of {runs[run]['steps'] or '?'}"
    if run not in usable and runs[run]["on"]:
        raise NowhereToAsk(f"run {run} is running, {at}\nfix: wait for its end, or ./motley stop")
    if run not in usable:
        what = f"run {run} was stopped before its first checkpoint"
        raise NowhereToAsk("\n".join([what, *away, f"fix: resume it: ./motley launch --resume {run}"]))
    have = [node for node in nodes if node.name in answers and made(answers[node.name], run) == most[run]]
    return UsableRun(run, "" if runs[run]["done"] else f" · stopped {at}", have, answers, silent)


def made(answer: Runs, run: str) -> float:
    """How much of a run a node has: its newest checkpoint, or all of it."""
    if run not in answer["runs"]:
        return 0.0
    facts = answer["runs"][run]
    return math.inf if facts["done"] else float(facts.get("checkpoint", 0))
