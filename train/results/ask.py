"""`python -m train ask`: questions of your own, answered by the base model and by what the run has made of it. A model
from nothing continues your text; a model of pictures names the classes of one.

python -m train ask --run qa --question "What does os.path.join do?"
python -m train ask --run photos --question holiday.jpg
python -m train ask --run qa                # one question a line; each stands for itself
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from train.errors import BadInput
from train.results import finished_run

if TYPE_CHECKING:
    from train.results.before_and_after import BeforeAndAfter, OneModel


def add_arguments(parser: argparse.ArgumentParser) -> None:
    finished_run.add_arguments(parser, required=True)
    parser.add_argument("--question", help="one question; -: all of standard input is one (default: each line)")
    parser.add_argument("--answer-tokens", type=int, default=200, help="longest answer (default 200)")
    parser.add_argument("--picture", action="store_true", help="the picture itself comes on standard input")
    parser.add_argument("--prompt", action="store_true", help="somebody types: show when the next question may come")


def main(args: argparse.Namespace) -> int:
    run = finished_run.find(args)
    if args.question == "-":  # others may read the words of a command
        args.question = sys.stdin.read().strip()
    if run.is_own:
        raise BadInput(
            f"run '{run.run}' is of a recipe of your own: it has no words to answer with",
            fix=f"./motley eval --run {run.run} measures it; its model: {run.folder}",
        )
    if run.scores:
        raise BadInput(
            f"run '{run.run}' made a reward model: it gives an answer a score and writes none",
            f"folder: {run.folder}",
            "README.md there shows how to load it; ./motley report says how many held-out pairs it puts right",
        )
    if run.recipe == "images":
        from train.results import pictures

        return pictures.ask(run, args)
    if not args.json:
        what = f"{run.original} before and after run {run.run}" if run.base else f"the model of run {run.run}"
        print(f"{what}: loading …", flush=True)

    from train.results.before_and_after import models_of

    models = models_of(run, args.answer_tokens)
    answers = []
    for question in [args.question] if args.question else typed(prompt=args.prompt):
        if args.json:
            turn = [{"role": "user", "content": question}]
            answers.append({"question": question, **{name: getattr(models, name)(turn) for name in models.names}})
        else:
            answer(models, question, again=not args.prompt)
    if args.json:
        print(json.dumps({"ok": True, "run": run.run, "step": run.step, "answers": answers}))
    return 0


def typed(*, prompt: bool) -> Iterator[str]:
    """Until the end of the input; where somebody types, an empty line is the end too."""
    while True:
        if prompt:
            print("\n? ", end="", flush=True)
        line = sys.stdin.readline()
        if not line or (prompt and not line.strip()):
            return
        if line.strip():
            yield line.strip()


def answer(models: BeforeAndAfter | OneModel, question: str, *, again: bool) -> None:
    if again:
        print(f"\n{question}")
    for name in models.names:
        printer = AnswerPrinter(name, max(map(len, models.names)))
        getattr(models, name)([{"role": "user", "content": question}], on_text=printer.write)
        print(flush=True)


class AnswerPrinter:
    """Prints an answer while it comes, its further lines below its first."""

    def __init__(self, name: str, width: int = len("before")) -> None:
        self.margin = " " * (width + 4)
        self.empty = True
        self.line_ends = 0
        print(f"  {name:<{width}}  ", end="", flush=True)

    def write(self, text: str) -> None:
        """Line ends wait for what comes behind them: at the end of an answer nothing does."""
        for part in re.findall(r"\n|[^\n]+", text.lstrip() if self.empty else text):
            if part == "\n":
                self.line_ends += 1
            else:
                print("\n" * self.line_ends + (self.margin if self.line_ends else "") + part, end="", flush=True)
                self.line_ends, self.empty = 0, False
