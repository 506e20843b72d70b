"""What a record of any known form asks: its turns up to where the model comes next, and the answer that stands there.

The forms are those of convert_record.py. Here each may be without its answer: training by rewards needs none, and a
record of preferences has its answers elsewhere.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from train.data.convert_record import FORMATS, PAIRS, BadRecord, JsonObject, Message, as_text, convert

BEFORE = ("system", "history")
QUESTIONS = ("prompt", "question", "query")
USED = {
    "chat": frozenset({"messages", "conversations", "system", "tools"}),
    "sharegpt": frozenset({"conversations", "system", "tools"}),
    "alpaca": frozenset({"instruction", "input", "context", "output", "response", "system", "history"}),
    "prompt": frozenset({*chain(*PAIRS), "system", "history", "tools"}),
    "text": frozenset({"text"}),
}
"""What each form reads of a record: the rest are columns."""
NEXT = {"role": "assistant", "content": "-"}
"""An answer where there is none, for the checks of a whole conversation."""


def form_of(record: JsonObject) -> str:
    """The form of what it asks; empty where it asks nothing that is known."""
    if any(name in record for name in QUESTIONS):
        return "prompt"
    form = next((name for name in ("chat", "sharegpt") if FORMATS[name][0](record)), "")
    return form or ("alpaca" if "instruction" in record else "")


def question_name(record: JsonObject) -> str:
    return next((name for name in QUESTIONS if name in record), QUESTIONS[0])


def asked_in(form: str, record: JsonObject) -> tuple[tuple[Message, ...], str | None]:
    """The turns that are asked, and the answer behind them; None where the model comes next."""
    lacks_answer = form == "alpaca" and not {"output", "response"} & record.keys()
    turns = FORMATS[form][1](record | {"output": NEXT["content"]} if lacks_answer else record).messages
    answered = turns[-1]["role"] == "assistant"
    asked = as_asked(list(turns[:-1] if answered else turns))
    return asked, None if lacks_answer or not answered else str(turns[-1]["content"])


def as_asked(turns: list[Any], beside: Any = None) -> tuple[Message, ...]:
    """Turns as a conversation is read elsewhere, with something in the last one; `beside`: what else the record has."""
    messages = convert("chat", {**(beside or {}), "messages": [*turns, NEXT]}).messages[:-1]
    if not str(messages[-1]["content"]).strip():
        raise BadRecord("the prompt is empty")
    return messages


def question_of(record: JsonObject, name: str) -> tuple[Message, ...]:
    """The turns of a prompt, which is a text or a list of turns, with those that the record has before it."""
    asked, beside = record.get(name), {key: record[key] for key in BEFORE if key in record}
    if isinstance(asked, list):
        messages = as_asked(asked, beside)
        if messages[-1]["role"] == "assistant":
            raise BadRecord(f"'{name}' ends with a turn of the assistant, and an answer comes next")
        return messages
    text = as_text(asked, f"'{name}'")
    if not text.strip():
        raise BadRecord("the prompt is empty")
    return convert("prompt", {**beside, "prompt": text, "completion": NEXT["content"]}).messages[:-1]
