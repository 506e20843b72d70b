"""The shapes that data sets come in, each turned into the same thing: a conversation, or plain text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Message = dict[str, str]
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}


@dataclass(frozen=True, slots=True)
class Example:
    """Either a conversation or a text."""

    messages: tuple[Message, ...] = ()
    text: str = ""


class BadRecord(ValueError):
    """Why this record cannot be used."""


def detect(record: dict[str, Any]) -> str | None:
    """The format whose keys the record has; the first that fits, in the order of FORMATS."""
    return next((name for name, (keys, _) in FORMATS.items() if keys(record)), None)


def convert(format_name: str, record: dict[str, Any]) -> Example:
    _, converter = FORMATS[format_name]
    example = converter(record)
    if example.messages:
        _check(example.messages)
    elif not example.text.strip():
        raise BadRecord("the text is empty")
    return example


def _check(messages: tuple[Message, ...]) -> None:
    first = next((message["role"] for message in messages if message["role"] != "system"), None)
    if first == "assistant":
        raise BadRecord("the conversation starts with the assistant")
    answers = [message["content"] for message in messages if message["role"] == "assistant"]
    if not answers:
        raise BadRecord("there is no answer in it (no turn of the assistant)")
    if not all(answer.strip() for answer in answers):
        raise BadRecord("the answer is empty")


def from_chat(record: dict[str, Any]) -> Example:
    turns = record.get("messages", record.get("conversations"))
    return Example(tuple(_turn(turn, "role", "content") for turn in _turns(turns)))


def from_sharegpt(record: dict[str, Any]) -> Example:
    system = [{"role": "system", "content": _text(record, "system")}] if record.get("system") else []
    turns = [_turn(turn, "from", "value") for turn in _turns(record.get("conversations"))]
    return Example((*system, *turns))


def from_alpaca(record: dict[str, Any]) -> Example:
    question = _text(record, "instruction")
    if extra := record.get("input"):
        question = f"{question}\n\n{extra}"
    system = [{"role": "system", "content": _text(record, "system")}] if record.get("system") else []
    return Example((*system, *_exchange(question, _text(record, "output"))))


def from_pair(record: dict[str, Any]) -> Example:
    """prompt and completion: two strings, or two lists of turns."""
    asked, answered = next((pair for pair in PAIRS if set(pair) <= record.keys()), PAIRS[0])
    if isinstance(record[asked], list):
        turns = [*_turns(record[asked]), *_turns(record[answered])]
        return Example(tuple(_turn(turn, "role", "content") for turn in turns))
    return Example(_exchange(_text(record, asked), _text(record, answered)))


def from_text(record: dict[str, Any]) -> Example:
    return Example(text=_text(record, "text"))


def _exchange(question: str, answer: str) -> tuple[Message, ...]:
    if not question.strip():
        raise BadRecord("the question is empty")
    return ({"role": "user", "content": question}, {"role": "assistant", "content": answer})


def _turns(turns: Any) -> list[Any]:
    if not isinstance(turns, list) or not turns:
        raise BadRecord("its list of turns is empty or no list")
    return turns


def _turn(turn: Any, role_key: str, content_key: str) -> Message:
    if not isinstance(turn, dict) or role_key not in turn or content_key not in turn:
        raise BadRecord(f"a turn lacks '{role_key}' or '{content_key}'")
    role = ROLES.get(str(turn[role_key]).lower())
    if role is None:
        raise BadRecord(f"the role '{turn[role_key]}' is unknown")
    content = turn[content_key]
    if isinstance(content, list):  # content in parts, as multimodal data sets write it
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise BadRecord("a turn holds something other than text")
        content = "".join(str(part.get("text", "")) for part in content)
    if not isinstance(content, str):
        raise BadRecord(f"a turn's '{content_key}' is not text but {type(content).__name__}")
    return {"role": role, "content": content}


def _text(record: dict[str, Any], key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str):
        raise BadRecord(f"'{key}' is missing" if value is None else f"'{key}' is not text but {type(value).__name__}")
    return value


PAIRS = (("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("query", "response"))


def _has(*keys: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: set(keys) <= record.keys()


def _turns_have(key: str) -> Callable[[dict[str, Any]], bool]:
    def test(record: dict[str, Any]) -> bool:
        turns = record.get("conversations") or [None]
        return isinstance(turns, list) and isinstance(turns[0], dict) and key in turns[0]

    return test


Format = tuple[Callable[[dict[str, Any]], bool], Callable[[dict[str, Any]], Example]]
FORMATS: dict[str, Format] = {
    "chat": (lambda record: "messages" in record or _turns_have("role")(record), from_chat),
    "sharegpt": (_turns_have("from"), from_sharegpt),
    "alpaca": (_has("instruction", "output"), from_alpaca),
    "prompt": (lambda record: any(set(pair) <= record.keys() for pair in PAIRS), from_pair),
    "text": (_has("text"), from_text),
}
