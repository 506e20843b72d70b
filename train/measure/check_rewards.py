"""`python -m train check-rewards`: what the rewards give, tried on rows before anything is launched.

    python -m train check-rewards --rewards ./rewards.py,exact --dataset sums.jsonl

They run as in a training run, in the process that train/rewards describes. For each row some answers are tried: the
one that the row has, and some that are plainly wrong. Then whether each function is one that a run can use: the same
answer has the same worth again, and alone, since a step's answers are scored in parts by several machines.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from train.data.convert_record import JsonObject
from train.data.prompt_records import Prompt, prompts_in, reader_of
from train.data.read_records import require_bytes
from train.errors import BadInput, CheckFailed
from train.plan.model import data_sets
from train.plan.settings.rewards import ANSWER, require_columns
from train.rewards.judge import Judge, Scored

OWN = ("completion", "response", "output", "solution", "target", ANSWER)
"""Columns in which a row may have a good answer; what it is compared with may be only a part of one."""
ITS_OWN, UNKNOWING = "its own", "I do not know."
MADE_UP = (
    ("What is 2 + 3?", "5"),
    ("What is the capital of France?", "Paris"),
    ('Write {"a": 1} as it is.', '{"a": 1}'),
)
"""What is tried where no data is named."""
COLUMN, TEXT = 14, 44
"""Widths of the table."""


@dataclass(frozen=True, slots=True)
class Tried:
    row: int
    kind: str
    """Where the answer comes from."""
    text: str
    prompt: Any
    columns: JsonObject

    @property
    def completion(self) -> Any:
        """The answer, as a turn where the prompt is a chat's."""
        return [{"role": "assistant", "content": self.text}] if isinstance(self.prompt, list) else self.text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rewards", required=True, help="./rewards.py, exact, number, …, with commas between them")
    parser.add_argument("--dataset", default="", help="a file of prompts; without one three rows are made up")
    parser.add_argument("--rows", type=int, default=4, help="rows that are tried")
    parser.add_argument("--seconds", type=float, default=30.0, help="the limit of one call of one function")


def main(args: argparse.Namespace) -> int:
    data = rows_of(args.dataset, max(1, args.rows)) if args.dataset else made_up()
    tried = list(answers_of(data))
    with Judge(args.rewards, args.seconds, "stop", Path()) as judge:
        shared = set.intersection(*(set(row.columns) for row in data))
        require_columns(judge.rewards, sorted(shared), args.dataset or "what is made up")
        began = time.perf_counter()
        scored = score(judge, tried)
        seconds = (time.perf_counter() - began) / len(tried)
        again = score(judge, tried)
        alone = [score(judge, [one]) for one in tried]
    notes = list(remarks(tried, scored))
    if args.json:
        rows = [
            asdict(one) | {"total": scored.total[at], "by_function": of_row(scored, at)} for at, one in enumerate(tried)
        ]
        print(json.dumps({"ok": True, "rows": rows, "seconds_per_answer": seconds, "notes": notes}))
    else:
        print("\n".join([*table(tried, scored), "", f"{1000 * seconds:.3g} ms an answer", *notes]))
    require_steady(tried, scored, again, alone)
    return 0


def rows_of(dataset: str, count: int) -> list[Prompt]:
    data = data_sets.resolve(dataset)
    if data.file is None:
        raise BadInput(
            f"{dataset} is no file of this machine", fix="name a file of prompts: check-rewards fetches none"
        )
    require_bytes([data.file])
    reader = reader_of(data.file, data.taken)
    prompts = list(islice(prompts_in(reader), count))
    if not prompts:
        problems = reader.tally.first_bad
        what = f"there is no prompt in this file; {problems[0]}" if problems else "there is no record in this file"
        raise BadInput(what, f"file: {data.file}", 'write: {"prompt": "What is 2 + 3?", "answer": "5"}')
    return prompts


def made_up() -> list[Prompt]:
    return [Prompt(asked, (), {ANSWER: answer}) for asked, answer in MADE_UP]


def answers_of(rows: Sequence[Prompt]) -> Iterator[Tried]:
    owns = [next((str(row.columns[name]) for name in OWN if row.columns.get(name) is not None), "") for row in rows]
    for at, (row, own) in enumerate(zip(rows, owns, strict=True)):
        others = [other for other in owns[at + 1 :] + owns[:at] if other not in ("", own)]
        texts = {ITS_OWN: own, "another row's": others[0] if others else "", "unknowing": UNKNOWING, "empty": ""}
        for kind, text in texts.items():
            if text or kind == "empty":
                yield Tried(at + 1, kind, text, row.asked, row.columns)


def score(judge: Judge, tried: Sequence[Tried]) -> Scored:
    names = sorted({name for one in tried for name in one.columns})
    columns = {name: [one.columns.get(name) for one in tried] for name in names}
    return judge.score([one.prompt for one in tried], [one.completion for one in tried], columns)


def table(tried: Sequence[Tried], scored: Scored) -> Iterator[str]:
    names = [*scored.by_function, "total"]
    yield f"{'row':>3}  {'answer':<{COLUMN}}{''.join(f'{short(name, COLUMN - 2):>{COLUMN}}' for name in names)}"
    for at, one in enumerate(tried):
        values = [*of_row(scored, at).values(), scored.total[at]]
        numbers = "".join(f"{'–' if value is None else f'{value:.4g}':>{COLUMN}}" for value in values)
        yield f"{one.row:>3}  {one.kind:<{COLUMN}}{numbers}  {short(' '.join(one.text.split()), TEXT)}".rstrip()


def short(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def of_row(scored: Scored, at: int) -> dict[str, float | None]:
    return {name: values[at] for name, values in scored.by_function.items()}


def remarks(tried: Sequence[Tried], scored: Scored) -> Iterator[str]:
    """What a person may not have meant: a run finds the easiest answer that is worth much."""
    for name, values in scored.by_function.items():
        if len({*values}) == 1:
            yield f"{name} gives every answer here the same: it would teach nothing"
    if len({*scored.total}) == 1:
        return
    own = {one.row: total for one, total in zip(tried, scored.total, strict=True) if one.kind == ITS_OWN}
    no_less: dict[str, list[str]] = {}
    for one, total in zip(tried, scored.total, strict=True):
        if one.kind != ITS_OWN and total >= own.get(one.row, math.inf):
            no_less.setdefault(one.kind, []).append(str(one.row))
    for kind, rows in no_less.items():
        yield f"row {', '.join(rows)}: the answer that is {kind} is worth as much as its own: a model finds that too"


def require_steady(tried: Sequence[Tried], scored: Scored, again: Scored, alone: Sequence[Scored]) -> None:
    for name, values in scored.by_function.items():
        for at, one in enumerate(tried):
            second, by_itself = again.by_function[name][at], alone[at].by_function[name][0]
            what = f"{name} gives the answer {one.text[:TEXT]!r} to row {one.row}"
            if second != values[at]:
                problem = f"{what} {shown(values[at])} and then {shown(second)}"
                raise CheckFailed(
                    problem, fix="let it depend on the answer alone: no random numbers, no clock, no memory"
                )
            if by_itself != values[at]:
                problem = f"{what} {shown(values[at])} among others, and {shown(by_itself)} alone"
                raise CheckFailed(problem, fix="let it look at each answer by itself: machines score parts of a step")


def shown(value: float | None) -> str:
    return "None" if value is None else f"{value:.6g}"
