"""`python -m train eval`: loss and perplexity of the base model and of the adapter on the held-out rows, and answers of
both, side by side. Of a model from nothing its own alone, and how it continues held-out texts; of pictures its
accuracy.

    python -m train eval --run qa
    python -m train eval --model tiny --adapter A --dataset stdlib-qa --questions 5 --rows 100

The data set must be the one that was trained on: its held-out part is what neither model has seen.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Required, TypedDict, cast

from train.errors import BadInput
from train.plan.settings.read_settings import OwnConfig, SftConfig, add_settings, load_config
from train.results import finished_run

if TYPE_CHECKING:
    from train.data.rows import Rows
    from train.models.backends import LossModule, ModelSpec
    from train.results.answer_question import Messages
    from train.results.finished_run import FinishedRun

ROWS = 200


class Loss(TypedDict):
    loss: float
    perplexity: float
    tokens: int


class Evaluated(TypedDict, total=False):
    """What `eval` prints as JSON: `adapter` and `base`, or of a model from nothing `model`."""

    rows: Required[int]
    """How many held-out rows were looked at."""
    adapter: Loss
    base: Loss
    model: Loss
    questions: Required[list[dict[str, str]]]
    """Each with the answers."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    finished_run.add_arguments(parser, required=False)
    parser.add_argument("--model", help="the base model")
    parser.add_argument("--adapter", type=Path, help="folder of the trained adapter")
    parser.add_argument("--dataset", help="prepared folder, or what was given to `run`")
    add_settings(parser, ("max_seq_length", "eval_fraction", "train_on"))
    parser.add_argument(
        "--load-in", choices=("4bit", "8bit", "16bit"), help="the base (default 16bit); 4bit needs bitsandbytes"
    )
    parser.add_argument("--rows", type=int, help="held-out rows looked at, at most (default 200; of pictures all)")
    parser.add_argument("--questions", type=int, default=3, help="held-out questions asked of both (default 3)")
    parser.add_argument("--answer-tokens", type=int, default=48, help="longest answer (default 48)")
    parser.add_argument("--as-they-come", action="store_true", help="with --json: first each answer on its own line")


def main(args: argparse.Namespace) -> int:
    step = None
    if args.run:
        run = finished_run.find(args)
        if run.is_own:
            return main_of_own(run, args)
        if run.recipe == "images":
            from train.results import pictures

            return pictures.evaluate(run, args.rows, as_json=args.json)
        if run.recipe == "grpo":
            raise BadInput(
                f"{run.run} was trained by rewards: its held-out reward is measured while it trains",
                fix=f"see: ./motley report {run.run}; ask it something with: ./motley ask --run {run.run}",
            )
        if run.recipe == "preference":
            raise BadInput(
                f"{run.run} was trained by preferences: its held-out pairs are compared while it trains",
                fix=f"see: ./motley report {run.run}"
                + ("" if run.scores else f"; ask it something with: ./motley ask --run {run.run}"),
            )
        if not run.base:
            return main_of_new(run, args)
        finished_run.fill(args, model=run.base, adapter=run.folder, dataset=run.dataset, load_in=run.load_in)
        step = run.step
    finished_run.require(args, "model", "adapter", "dataset")

    def show(asked: dict[str, str]) -> None:
        if not args.json:
            print("\n".join(answer_as_text(asked)), flush=True)
        elif args.as_they_come:
            print(json.dumps({"answer": asked}), flush=True)

    result = evaluate(args, show)
    print(json.dumps({"ok": True, **result, "step": step}) if args.json else "\n".join(losses_as_text(result)))
    return 0


def evaluate(args: argparse.Namespace, on_answer: Callable[[dict[str, str]], None]) -> Evaluated:
    """`on_answer` gets each question with both answers as soon as they are there."""
    from train.data.rows import date_of, open_rows, template_of
    from train.data.to_tokens import load_chat
    from train.models.backends import ModelSpec
    from train.models.model_files import model_folder
    from train.plan.model.catalogue import resolve_model
    from train.results.answer_question import Questioner

    folder = prepared_folder(args)
    rows = finished_run.some_held_out(open_rows(folder, "eval"), folder, "prepare it with --eval-fraction 0.05")
    base_folder = model_folder(args.model)
    module, device = built(
        ModelSpec(
            folder=base_folder, load_in=args.load_in or "16bit", adapter=args.adapter, max_seq_length=rows.row_length
        )
    )
    model: Any = module.model
    chat = load_chat(resolve_model(base_folder), date_of(folder), template_of(folder))
    ask = Questioner(model, chat, args.answer_tokens, device)
    questions = held_out_questions(folder)[: args.questions]
    some = list(range(min(args.rows or ROWS, len(rows))))

    tuned, asked = loss_of(module, rows, some, device), []
    with model.disable_adapter():
        untuned = loss_of(module, rows, some, device)
    for question in questions:
        with model.disable_adapter():
            before = ask(question[:-1])
        answers = {"base": before, "adapter": ask(question[:-1])}
        asked.append({"question": question[-2]["content"], "wanted": question[-1]["content"], **answers})
        on_answer(asked[-1])
    return {"rows": len(some), "adapter": tuned, "base": untuned, "questions": asked}


def loss_of(module: LossModule, rows: Rows, some: list[int], device: str) -> Loss:
    from train.models.backends import sums_over

    (total, *_), tokens = sums_over(module, rows, some, micro_batch=4, device=device)
    loss = total / tokens
    return {"loss": loss, "perplexity": math.exp(min(loss, 700)), "tokens": tokens}


def main_of_new(run: FinishedRun, args: argparse.Namespace) -> int:
    """Evaluates a model that has no base."""
    from train.data.rows import open_rows
    from train.models.backends import ModelSpec
    from train.results.answer_question import Questioner
    from train.results.before_and_after import chat_of

    folder = Path(run.dataset)
    rows = finished_run.some_held_out(open_rows(folder, "eval"), folder)
    module, device = built(ModelSpec(folder=str(run.folder), method="base"))
    some = list(range(min(args.rows or ROWS, len(rows))))
    result: Evaluated = {"rows": len(some), "model": loss_of(module, rows, some, device), "questions": []}
    ask = Questioner(module.model, chat_of(run), args.answer_tokens, device, drawn=True)
    prompts = json.loads((folder / "prompts.json").read_text())[: args.questions]
    for given in (ask.chat.tokenizer.decode(prompt, skip_special_tokens=True) for prompt in prompts):
        result["questions"].append({"question": given, "model": ask([{"role": "user", "content": given}])})
    if args.json:
        print(json.dumps({"ok": True, **result, "step": run.step}))
        return 0
    lines = [f"  {asked['question']} ▸ {' '.join(asked['model'].split())}" for asked in result["questions"]]
    print("\n".join([*lines, "", *losses_as_text(result)]))
    return 0


def main_of_own(run: FinishedRun, args: argparse.Namespace) -> int:
    """Evaluates a recipe of one's own: its loss, and its metrics where it has any."""
    from train.models.backends import LossModule
    from train.models.device import best_device
    from train.recipes.own import make_rows as own_rows
    from train.recipes.own import recipe as own
    from train.recipes.own.rows import RECIPE, open_rows

    folder = Path(run.dataset)
    rows = finished_run.some_held_out(open_rows(folder, "eval"), folder)
    config = cast(OwnConfig, load_config(run.settings | {"recipe": str(folder / RECIPE), "dataset": str(folder)}))
    device = best_device()
    recipe = own.OwnRecipe(config)
    model = own_rows.build_model(recipe.functions, config, folder).to(device)
    own.weights_into(model, run.folder)
    module, some = LossModule(model, recipe.functions.loss_sum), list(range(min(args.rows or ROWS, len(rows))))
    metrics = own.measured(recipe.functions, module, rows, some, device)
    found = {"loss": loss_of(module, rows, some, device)["loss"], **metrics}
    if args.json:
        print(json.dumps({"ok": True, "rows": len(some), "model": found, "questions": [], "step": run.step}))
        return 0
    print(f"{len(some)} held-out rows")
    print("\n".join(f"  {name:18}{value:11.4g}" for name, value in found.items()))
    return 0


def built(spec: ModelSpec) -> tuple[LossModule, str]:
    """A model on the best device of this machine, and which that is."""
    from train.models import backends
    from train.models.device import best_device, precision_of

    device, backend = best_device(), backends.get("hf")
    precision = precision_of(device)
    model = backend.build(replace(spec, device=device, precision=precision))
    return backends.loss_module(backend, model, precision, device), device


def held_out_questions(folder: Path) -> list[Messages]:
    """Conversations of the held-out part that end with an answer; first one for each answer, then the others."""
    file = folder / "questions.jsonl"
    conversations = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    asked = [messages for messages in conversations if len(messages) > 1 and messages[-1]["role"] == "assistant"]
    firsts = {messages[-1]["content"]: messages for messages in reversed(asked)}
    return sorted(asked, key=lambda messages: firsts[messages[-1]["content"]] is not messages)


def prepared_folder(args: argparse.Namespace) -> Path:
    folder = Path(args.dataset).expanduser()
    if (folder / "index.json").is_file():
        return folder
    from train.data.prepare import prepare

    names = ("dataset", "model", "max_seq_length", "train_on", "eval_fraction")
    config = load_config({n: getattr(args, n) for n in names if hasattr(args, n)})
    return prepare(cast(SftConfig, config), say=lambda _: None)


def losses_as_text(result: Evaluated) -> list[str]:
    lines = [f"{result['rows']} held-out rows   loss   perplexity"]
    each = {"base": result.get("base"), "adapter": result.get("adapter"), "model": result.get("model")}
    for name, figures in ((name, figures) for name, figures in each.items() if figures):
        lines.append(f"  {name:18}{figures['loss']:7.3f}{figures['perplexity']:13.2f}")
    return lines


def answer_as_text(asked: dict[str, str]) -> list[str]:
    answers = [f"  {name:8} {' '.join(asked[name].split())}" for name in ("wanted", "base", "adapter")]
    return [asked["question"], *answers, ""]
