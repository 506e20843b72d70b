"""`python -m train eval`: loss and perplexity of the base model and of the adapter on the held-out rows, and answers of
both, side by side.

    python -m train eval --model smollm2-135m --adapter results/qa/adapter --dataset PREPARED_FOLDER
    python -m train eval --model tiny --adapter A --dataset stdlib-qa --questions 5 --rows 100

The data set must be the one that was trained on: its held-out part is what neither model has seen.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.errors import BadInput

Messages = list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class Score:
    loss: float
    tokens: int

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", required=True, help="the base model")
    parser.add_argument("--adapter", required=True, type=Path, help="folder of the trained adapter")
    parser.add_argument("--dataset", required=True, help="prepared folder, or what was given to `run`")
    parser.add_argument(
        "--max-seq-length", type=int, default=512, help="as in `run`, where the data set has to be prepared"
    )
    parser.add_argument("--eval-fraction", type=float, default=0.05, help="as in `run`")
    parser.add_argument("--train-on", default="answers", help="as in `run`")
    parser.add_argument(
        "--load-in", default="16bit", choices=("4bit", "8bit", "16bit"), help="the base; 4bit needs a GPU"
    )
    parser.add_argument("--rows", type=int, default=200, help="held-out rows looked at, at most (default 200)")
    parser.add_argument("--questions", type=int, default=3, help="held-out questions asked of both (default 3)")
    parser.add_argument("--answer-tokens", type=int, default=48, help="longest answer (default 48)")


def main(args: argparse.Namespace) -> int:
    if not (args.adapter / "adapter_config.json").is_file():
        raise BadInput("this folder holds no adapter: it has no adapter_config.json", f"folder: {args.adapter}")
    result = evaluate(args)
    if args.json:
        print(json.dumps({"ok": True, **result}))
    else:
        sys.stdout.writelines(f"{line}\n" for line in as_text(result))
    return 0


def evaluate(args: argparse.Namespace) -> dict[str, Any]:
    import torch

    from train import backends
    from train.catalogue import model_folder
    from train.rows import open_rows

    folder = prepared_folder(args)
    rows = open_rows(folder, "eval")
    if not len(rows):
        raise BadInput(
            "nothing is held out in this data set", f"folder: {folder}", "prepare it with --eval-fraction 0.05"
        )
    device = "cuda:0" if torch.cuda.is_available() else "cpu"
    precision = "bf16" if device != "cpu" else "fp32"
    backend = backends.get("hf")
    base_folder = model_folder(args.model)
    spec = backends.ModelSpec(
        folder=base_folder,
        device=device,
        precision=precision,
        load_in=args.load_in,
        adapter=args.adapter,
        max_seq_length=rows.row_length,
    )
    model: Any = backend.build(spec)
    some = list(range(min(args.rows, len(rows))))
    ask = Questioner(model, base_folder, args.answer_tokens, device)
    questions = held_out_questions(folder)[: args.questions]
    scores, answers = {}, {}
    scores["adapter"] = score(backend, model, rows, some, precision=precision, device=device)
    answers["adapter"] = [ask(question) for question in questions]
    with model.disable_adapter():
        scores["base"] = score(backend, model, rows, some, precision=precision, device=device)
        answers["base"] = [ask(question) for question in questions]
    return {
        "rows": len(some),
        **{name: {"loss": s.loss, "perplexity": s.perplexity, "tokens": s.tokens} for name, s in scores.items()},
        "questions": [
            {
                "question": question[-2]["content"],
                "wanted": question[-1]["content"],
                "base": answers["base"][number],
                "adapter": answers["adapter"][number],
            }
            for number, question in enumerate(questions)
        ],
    }


def score(backend: Any, model: Any, rows: Any, some: list[int], *, precision: str, device: str) -> Score:
    from train.evaluation import loss_over
    from train.sync import make_shell

    shell = make_shell(backend, model, precision, device)
    total, tokens = loss_over(shell, rows, some, micro_batch=4, device=device)
    return Score(total / tokens, tokens)


class Questioner:
    """Greedy answers: the same question gets the same answer, so that a change is the training's."""

    def __init__(self, model: Any, base_folder: str, answer_tokens: int, device: str) -> None:
        from train.catalogue import resolve_model
        from train.chat import load_chat

        self.model = model
        self.chat = load_chat(resolve_model(base_folder))
        self.answer_tokens = answer_tokens
        self.device = device

    def __call__(self, question: Messages) -> str:
        import torch

        prompt = self.chat.render(question[:-1], answer_next=True)
        tokens = self.chat.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self.device)
        self.model.eval()
        with torch.no_grad():
            out = self.model.generate(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                max_new_tokens=self.answer_tokens,
                do_sample=False,
                use_cache=True,
                pad_token_id=self.chat.pad_id,
            )
        answer = out[0, tokens["input_ids"].shape[1] :]
        return str(self.chat.tokenizer.decode(answer, skip_special_tokens=True)).strip()


def held_out_questions(folder: Path) -> list[Messages]:
    """Conversations of the held-out part that end with an answer."""
    file = folder / "questions.jsonl"
    conversations = [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []
    return [messages for messages in conversations if len(messages) > 1 and messages[-1]["role"] == "assistant"]


def prepared_folder(args: argparse.Namespace) -> Path:
    folder = Path(args.dataset).expanduser()
    if (folder / "index.json").is_file():
        return folder
    from train.prepare import PrepareSettings, prepare

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
