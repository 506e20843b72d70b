"""Records of prompts: what a model is asked, and what else stands there, which the rewards get.

    {"prompt": "What is 2 + 3?", "answer": "5"}          {"prompt": [{"role": "user", "content": "…"}], "level": 2}

A question of another kind of data set is a prompt as well, and its answer a column (question.py).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from train.data.convert_record import BadRecord, JsonObject, Message, require_whole_characters, tools_of
from train.data.question import USED, asked_in, form_of, question_name, question_of
from train.data.read_records import Found, Reader
from train.data.split import draw
from train.plan.model.catalogue import Taken

FORMAT_NAME = "prompts"
NOT_A_COLUMN = frozenset({"prompts", "completions", "completion_ids", "trainer_state"})
"""Names by which a reward is given something else."""


@dataclass(frozen=True, slots=True)
class Prompt:
    asked: Any
    """A text, or turns: as it stands in the data, and as the rewards get it."""
    messages: tuple[Message, ...]
    columns: JsonObject = field(default_factory=dict)
    tools: tuple[JsonObject, ...] = ()
    """What the assistant may call, beside turns."""

    def split(self, eval_fraction: float) -> str:
        """The side follows from what is asked alone, so what is asked twice is on one side."""
        return "eval" if draw(self.messages) < eval_fraction else "train"


def prompt_of(found: Found, form: str = "auto") -> Prompt | BadRecord:
    """`form`: what a record is, by the names of convert_record.py; auto: as its keys say."""
    return found.read_by(partial(read, form))


def read(form: str, record: JsonObject) -> Prompt:
    form = form_of(record) if form == "auto" else form
    if not form:
        raise BadRecord(f"there is no prompt in it: its keys are {', '.join(map(str, list(record)[:8]))}")
    prompt = of_question(record) if form == "prompt" else of_conversation(form, record)
    if taken := sorted(NOT_A_COLUMN & prompt.columns.keys()):
        raise BadRecord(f"a column cannot be called '{taken[0]}': a reward gets something else by that name")
    require_whole_characters(prompt.asked, prompt.columns, prompt.tools)
    return replace(prompt, asked=as_json(prompt.asked), columns=as_json(prompt.columns))


def as_json(value: Any) -> Any:
    """The value as rows keep it; a date or a decimal number of parquet becomes its text."""
    return json.loads(json.dumps(value, default=str))


def of_question(record: JsonObject) -> Prompt:
    name = question_name(record)
    columns = {key: value for key, value in record.items() if key != name}
    return Prompt(record.get(name), question_of(record, name), columns)


def of_conversation(form: str, record: JsonObject) -> Prompt:
    """All turns before the last answer are the prompt; that answer is the column `answer` where there is none of that
    name."""
    asked, answer = asked_in(form, record)
    turns = [dict(turn) for turn in asked]
    whole: Any = turns[0]["content"] if len(turns) == 1 else turns
    columns = {key: value for key, value in record.items() if key not in USED[form]}
    tools = tools_of(record) if "tools" in USED[form] else ()
    return Prompt(whole, asked, ({} if answer is None else {"answer": answer}) | columns, tools)


def reader_of(file: Path, taken: Taken) -> Reader:
    """A reader for who wants the first good prompts, however many bad records there are."""
    return Reader([file], lambda _: None, format_name=FORMAT_NAME, max_bad=math.inf, taken=taken)


def prompts_in(reader: Reader, form: str = "auto") -> Iterator[Prompt]:
    for _, prompt in reader.made(lambda asked: [prompt_of(found, form) for found in asked[1]]):
        yield prompt


def columns_of(file: Path, taken: Taken, form: str) -> list[str]:
    """The columns of the first prompt."""
    return next((sorted(prompt.columns) for prompt in prompts_in(reader_of(file, taken), form)), [])
