"""`python -m train eval`: loss and perplexity of the base model and of the adapter on the held-out rows, and answers of
both, side by side.

    python -m train eval --run qa
    python -m train eval --model tiny --adapter A --dataset stdlib-qa --questions 5 --rows 100

The data set must be the one that was trained on: its held-out part is what neither model has seen.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.results import finished_run
from train.errors import BadInput

if TYPE_CHECKING:
    from train.models.backends import LossModule

Messages = list[dict[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    finished_run.add_arguments(parser, required=False)
    parser.add_argument("--model", help="the base model")
    parser.add_argument("--adapter", type=Path, help="folder of the trained adapter")
    parser.add_argument("--dataset", help="prepared folder, or what was given to `run`")
    parser.add_argument(
        "--max-seq-length", type=int, default=512, help="as in `run`, where the data set has to be prepared"
    )
    parser.add_argument("--eval-fraction", type=float, default=0.05, help="as in `run`")
    parser.add_argument("--train-on", default="answers", help="as in `run`")
    parser.add_argument(
        "--load-in", choices=("4bit", "8bit", "16bit"), help="the base (default 16bit); 4bit needs bitsandbytes"
    )
    parser.add_argument("--rows", type=int, default=200, help="held-out rows looked at, at most (default 200)")
    parser.add_argument("--questions", type=int, default=3, help="held-out questions asked of both (default 3)")
    parser.add_argument("--answer-tokens", type=int, default=48, help="longest answer (default 48)")


def main(args: argparse.Namespace) -> int:
    if args.run:
        run = finished_run.find(args)
        finished_run.fill(args, model=run.base, adapter=run.folder, dataset=run.dataset, load_in=run.load_in)
    finished_run.require(args, "model", "adapter", "dataset")
    if not (args.adapter / "adapter_config.json").is_file():
        raise BadInput("this folder holds no adapter: it has no adapter_config.json", f"folder: {args.adapter}")
    result = evaluate(args)
    if args.json:
        print(json.dumps({"ok": True, **result}))
    else:
        sys.stdout.writelines(f"{line}\n" for line in as_text(result))
    return 0


def evaluate(args: argparse.Namespace) -> dict[str, Any]:
    from train.data.rows import open_rows
    from train.engine.batches import loss_over
    from train.models.locate import model_folder
    from train.results.answers import Questioner

    folder = prepared_folder(args)
    rows = open_rows(folder, "eval")
    if not len(rows):
        fix = "prepare it with --eval-fraction 0.05"
        raise BadInput("nothing is held out in this data set", f"folder: {folder}", fix)
    base_folder = model_folder(args.model)
    module, device = load(args, base_folder, rows.row_length)
    model: Any = module.model
    ask = Questioner(model, base_folder, args.answer_tokens, device, rows=folder)
    questions = held_out_questions(folder)[: args.questions]
    some = list(range(min(args.rows, len(rows))))

    def measure() -> tuple[dict[str, Any], list[str]]:
        total, tokens = loss_over(module, rows, some, micro_batch=4, device=device)
        loss = total / tokens
        figures = {"loss": loss, "perplexity": math.exp(min(loss, 700)), "tokens": tokens}
        return figures, [ask(question[:-1]) for question in questions]

    adapter, tuned = measure()
    with model.disable_adapter():
        base, untuned = measure()
    asked = [
        {"question": question[-2]["content"], "wanted": question[-1]["content"], "base": before, "adapter": after}
        for question, before, after in zip(questions, untuned, tuned, strict=True)
    ]
    return {"rows": len(some), "adapter": adapter, "base": base, "questions": asked}


def load(args: argparse.Namespace, base_folder: str, row_length: int) -> tuple[LossModule, str]:
    """The base with its adapter, and the device that it is on."""
    import torch

    from train.engine.device import precision_of
    from train.models import backends

    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    precision, backend = precision_of(device), backends.get("hf")
    spec = backends.ModelSpec(
        folder=base_folder,
        device=device,
        precision=precision,
        load_in=args.load_in or "16bit",
        adapter=args.adapter,
        max_seq_length=row_length,
    )
    return backends.loss_module(backend, backend.build(spec), precision, device), device


def held_out_questions(folder: Path) -> list[Messages]:
    """Conversations of the held-out part that end with an answer."""
    file = folder / "questions.jsonl"
    conversations = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return [messages for messages in conversations if len(messages) > 1 and messages[-1]["role"] == "assistant"]


def prepared_folder(args: argparse.Namespace) -> Path:
    folder = Path(args.dataset).expanduser()
    if (folder / "index.json").is_file():
        return folder
    from train.data.prepare import PrepareSettings, prepare

    names = ("dataset", "model", "max_seq_length", "train_on", "eval_fraction")
    return prepare(PrepareSettings(**{name: getattr(args, name) for name in names}), say=lambda _: None)


def as_text(result: dict[str, Any]) -> list[str]:
    lines = [f"{result['rows']} held-out rows   loss   perplexity"]
    for name in ("base", "adapter"):
        figures = result[name]
        lines.append(f"  {name:18}{figures['loss']:7.3f}{figures['perplexity']:13.2f}")
    for asked in result["questions"]:
        lines += ["", asked["question"]]
        lines += [f"  {name:8} {' '.join(asked[name].split())}" for name in ("wanted", "base", "adapter")]
    return lines
