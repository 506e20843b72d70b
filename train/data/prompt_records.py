"""Records of prompts: what a model is asked, and what else stands there, which the rewards get.

    {"prompt": "What is 2 + 3?", "answer": "5"}          {"prompt": [{"role": "user", "content": "…"}], "level": 2}

A question of another kind of data set is a prompt as well, and its answer a column.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from train.data.formats import BadRecord, Message, as_text, convert, detect
from train.data.records import Asked, Found, renamed
from train.data.sources import Source
from train.data.split import draw
from train.plan.model.catalogue import Taken

FORMAT_NAME = "prompts"
QUESTIONS = ("prompt", "question", "query")
NOT_A_COLUMN = frozenset({"prompts", "completions", "completion_ids", "trainer_state"})
"""Names by which a reward is given something else."""


@dataclass(frozen=True, slots=True)
class Prompt:
    asked: Any
    """A text, or turns: as it stands in the data, and as the rewards get it."""
    messages: tuple[Message, ...]
    columns: dict[str, Any] = field(default_factory=dict)

    def split(self, eval_fraction: float) -> str:
        """The side follows from what is asked alone, so what is asked twice is on one side."""
        return "eval" if draw(self.messages) < eval_fraction else "train"


def prompt_of(found: Found) -> Prompt | BadRecord:
    if found.value is None:
        return BadRecord(found.problem)
    try:
        return read(found.value)
    except BadRecord as error:
        return error


def read(record: dict[str, Any]) -> Prompt:
    name = next((name for name in QUESTIONS if name in record), "")
    if not name:
        return of_conversation(record)
    asked, columns = record[name], {key: value for key, value in record.items() if key != name}
    if taken := sorted(NOT_A_COLUMN & columns.keys()):
        raise BadRecord(f"a column cannot be called '{taken[0]}': a reward gets something else by that name")
    return Prompt(asked, messages_of(asked, name), columns)


def messages_of(asked: Any, name: str) -> tuple[Message, ...]:
    if isinstance(asked, list):
        turns = convert("chat", {"messages": [*asked, {"role": "assistant", "content": "-"}]}).messages[:-1]
        if not turns or turns[-1]["role"] == "assistant":
            raise BadRecord(f"'{name}' ends with a turn of the assistant, and it is the model's turn")
        return asked_something(turns)
    text = as_text(asked, f"'{name}'")
    if not text.strip():
        raise BadRecord("the prompt is empty")
    return convert("prompt", {"prompt": text, "completion": "-"}).messages[:1]


def asked_something(turns: tuple[Message, ...]) -> tuple[Message, ...]:
    if turns and not str(turns[-1]["content"]).strip():
        raise BadRecord("the prompt is empty")
    return turns


def of_conversation(record: dict[str, Any]) -> Prompt:
    """All turns before the last answer are the prompt; that answer is the column `answer`."""
    known = detect(record)
    if known in (None, "text"):
        raise BadRecord(f"there is no prompt in it: its keys are {', '.join(map(str, list(record)[:8]))}")
    turns = convert(str(known), record).messages
    if turns[-1]["role"] != "assistant":
        raise BadRecord("its last turn is not the assistant's")
    asked_something(turns[:-1])
    asked = [dict(turn) for turn in turns[:-1]]
    whole: Any = asked[0]["content"] if len(asked) == 1 else asked
    return Prompt(whole, tuple(turns[:-1]), {"answer": turns[-1]["content"]})


def sides(eval_fraction: float, asked: Asked) -> list[tuple[str, bool] | BadRecord]:
    """On which side each record is; as in look.py."""
    prompts = [prompt_of(found) for found in asked[1]]
    return [one if isinstance(one, BadRecord) else (one.split(eval_fraction), True) for one in prompts]


def columns_of(file: Path, taken: Taken | None = None) -> list[str]:
    """The columns of the first prompt."""
    for record in Source(file):
        try:
            if record.value is not None:
                value = renamed(record.value, taken.columns, f"file: {file}") if taken else record.value
                return sorted(read(value).columns)
        except BadRecord:
            continue
    return []
