"""The shapes that data sets come in, each turned into the same thing: a conversation, or plain text."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Required, TypedDict

JsonObject = dict[str, object]
"""A JSON object as somebody wrote it: each value is looked at before it is used."""


class Function(TypedDict):
    name: str
    arguments: object


class ToolCall(TypedDict, total=False):
    """A call of a tool, as chat templates read it."""

    id: str
    type: Required[str]
    function: Required[Function]


class Message(TypedDict, total=False):
    """A turn of a conversation."""

    role: Required[str]
    content: Required[str]
    name: str
    tool_call_id: str
    reasoning_content: str
    thinking: str
    tool_calls: list[ToolCall]


KEPT: tuple[Literal["name", "tool_call_id", "reasoning_content", "thinking"], ...]
KEPT = ("name", "tool_call_id", "reasoning_content", "thinking")
"""What else of a turn a chat template may write."""
ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "assistant": "assistant",
    "model": "assistant",
    "system": "system",
    "developer": "developer",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "function_call": "assistant",
}


@dataclass(frozen=True, slots=True)
class Example:
    """Either a conversation or a text."""

    messages: tuple[Message, ...] = ()
    text: str = ""
    tools: tuple[JsonObject, ...] = ()
    """What the assistant may call, as chat templates read it."""
    trained_turns: int = 0
    """How many of the assistant's turns are trained on, the last ones; 0: all."""
    untrained: frozenset[int] = frozenset()
    """The assistant's turns that are never trained on, counted from the last, which is 1."""


class BadRecord(ValueError):
    """Why this record cannot be used."""


def detect(record: JsonObject) -> str | None:
    """The format whose keys the record has; the first that fits, in the order of FORMATS."""
    return next((name for name, (keys, _) in FORMATS.items() if keys(record)), None)


def convert(format_name: str, record: JsonObject) -> Example:
    _, converter = FORMATS[format_name]
    example = converter(record)
    if example.messages:
        _check(example.messages)
    elif not example.text.strip():
        raise BadRecord("the text is empty")
    require_whole_characters(example.text, example.messages, example.tools)
    return example


def _check(messages: tuple[Message, ...]) -> None:
    answers = [message for message in messages if message["role"] == "assistant"]
    if not answers:
        raise BadRecord("there is no answer in it (no turn of the assistant)")
    if all(message["role"] in ("assistant", "system", "developer") for message in messages):
        raise BadRecord("there is no question in it (no turn of the user)")
    if not all(answer["content"].strip() or answer.get("tool_calls") for answer in answers):
        raise BadRecord("the answer is empty")


def require_whole_characters(*values: object) -> None:
    try:
        "".join(_strings(values)).encode()
    except UnicodeEncodeError as error:
        half = str(error.object[error.start]).encode("unicode_escape").decode()
        raise BadRecord(f"half a character ({half}, as of a cut emoji), which no tokenizer reads") from None


def _strings(value: object) -> Iterator[str]:
    """All texts in JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _strings([*value, *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def from_chat(record: JsonObject) -> Example:
    turns = _turns(record.get("messages", record.get("conversations")))
    messages = tuple(_turn(turn, "role", "content") for turn in turns)
    answers = [turn for turn, message in zip(turns, messages, strict=True) if message["role"] == "assistant"]
    # OpenAI's form: an answer that is there to be read, and not to be learned.
    untrained = frozenset(place for place, turn in enumerate(reversed(answers), 1) if turn.get("weight") == 0)
    if answers and len(untrained) == len(answers):
        raise BadRecord("none of its answers is to be trained on (weight: 0)")
    return Example((*_system(record, messages), *messages), tools=tools_of(record), untrained=untrained)


def from_sharegpt(record: JsonObject) -> Example:
    turns = [_turn(turn, "from", "value") for turn in _turns(record.get("conversations"))]
    return Example((*_system(record, turns), *turns), tools=tools_of(record))


def from_alpaca(record: JsonObject) -> Example:
    """An example from a record of Alpaca (instruction, input, output) or Dolly (instruction, context, response), or of
    one that has a key of each."""
    answer_key = "response" if "output" not in record and "response" in record else "output"
    extra_key = next((key for key in ("input", "context") if record.get(key) not in (None, "", [])), "")
    question = _text(record, "instruction")
    if extra_key:
        question = f"{question}\n\n{_text(record, extra_key)}"
    return Example(_answered(record, question, _text(record, answer_key)))


def from_pair(record: JsonObject) -> Example:
    """prompt and completion: two strings, or two lists of turns."""
    asked, answered = next((pair for pair in PAIRS if set(pair) <= record.keys()), PAIRS[0])
    if isinstance(record.get(asked), list):
        listed = [*_turns(record[asked]), *_turns(record.get(answered))]
        turns = [_turn(turn, "role", "content") for turn in listed]
        return Example((*_system(record, turns), *turns), tools=tools_of(record))
    return Example(_answered(record, _text(record, asked), _text(record, answered)))


def from_text(record: JsonObject) -> Example:
    return Example(text=_text(record, "text"))


def _answered(record: JsonObject, question: str, answer: str) -> tuple[Message, ...]:
    """A question with its answer, and what stands before them in the record."""
    listed = record.get("history")
    history = listed if isinstance(listed, list) else []
    if not all(isinstance(said, list) and len(said) == 2 for said in history):
        raise BadRecord("'history' is no list of questions, each with its answer")
    before = [turn for said in history for turn in _exchange(*(as_text(text, "'history'") for text in said))]
    return (*_system(record), *before, *_exchange(question, answer))


def _system(record: JsonObject, turns: Sequence[Message] = ()) -> list[Message]:
    """The message that stands beside the turns, where they do not begin with one."""
    if not record.get("system") or (turns and turns[0]["role"] in ("system", "developer")):
        return []
    return [Message(role="system", content=_text(record, "system"))]


def _exchange(question: str, answer: str) -> tuple[Message, ...]:
    if not question.strip():
        raise BadRecord("the question is empty")
    return ({"role": "user", "content": question}, {"role": "assistant", "content": answer})


def _turns(turns: Any) -> list[Any]:
    if not isinstance(turns, list) or not turns:
        raise BadRecord("its list of turns is empty or no list")
    return turns


def _turn(turn: Any, role_key: str, content_key: str) -> Message:
    if not isinstance(turn, dict) or role_key not in turn or not turn.keys() & {content_key, *CALLS}:
        raise BadRecord(f"a turn lacks '{role_key}' or '{content_key}'")
    role = ROLES.get(str(turn[role_key]).lower())
    if role is None:
        raise BadRecord(f"the role '{turn[role_key]}' is unknown")
    content, calls = turn.get(content_key), _calls(turn)
    if isinstance(content, list):  # content in parts, as multimodal data sets write it
        if not all(isinstance(part, dict) and part.get("type") == "text" for part in content):
            raise BadRecord("a turn holds something other than text")
        content = "".join(str(part.get("text", "")) for part in content)
    text = "" if content is None and calls else as_text(content, f"a turn's '{content_key}'")
    message = Message(role=role, content=text)
    for key in KEPT:
        if isinstance(turn.get(key), str):
            message[key] = turn[key]
    if calls:
        message["tool_calls"] = calls
    return message


def _calls(turn: JsonObject) -> list[ToolCall]:
    """A turn's calls of tools, in the shape that chat templates read: the arguments an object, not its text."""
    old = [{"function": turn["function_call"]}] if turn.get("function_call") else []
    calls = turn.get("tool_calls") or old
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise BadRecord("a turn's 'tool_calls' is no list of calls")
    shaped: list[ToolCall] = []
    for call in calls:
        function = call.get("function", call)
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            raise BadRecord("a call in 'tool_calls' has no name")
        called = Function(name=function["name"], arguments=_arguments(function.get("arguments")))
        if isinstance(call.get("id"), str):
            shaped.append(ToolCall(id=call["id"], type="function", function=called))
        else:
            shaped.append(ToolCall(type="function", function=called))
    return shaped


def _arguments(written: Any) -> Any:
    if not isinstance(written, str):
        return written or {}
    try:
        return json.loads(written)
    except ValueError:
        return written


def tools_of(record: JsonObject) -> tuple[JsonObject, ...]:
    """A list, or the text of one, as some data sets keep it."""
    tools = record.get("tools") or []
    if isinstance(tools, str):
        tools = _arguments(tools)
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise BadRecord("'tools' is no list of tools")
    return tuple(tools)


def _text(record: JsonObject, key: str) -> str:
    if record.get(key) is None:
        raise BadRecord(f"'{key}' is missing")
    return as_text(record[key], f"'{key}'")


def as_text(value: Any, what: str) -> str:
    """A number is an answer too, written as JSON has it."""
    if isinstance(value, int) or (isinstance(value, float) and math.isfinite(value)):
        return json.dumps(value)
    if not isinstance(value, str):
        raise BadRecord(f"{what} is not text but {type(value).__name__}")
    return value


CALLS = ("tool_calls", "function_call")
"""A turn that has one of these may be without words."""
PAIRS = (("prompt", "completion"), ("prompt", "response"), ("question", "answer"), ("query", "response"))


def _has_all_of(*choices: tuple[str, ...]) -> Callable[[JsonObject], bool]:
    return lambda record: any(set(keys) <= record.keys() for keys in choices)


def _turns_have(key: str) -> Callable[[JsonObject], bool]:
    def test(record: JsonObject) -> bool:
        turns = record.get("conversations") or [None]
        return isinstance(turns, list) and isinstance(turns[0], dict) and key in turns[0]

    return test


Format = tuple[Callable[[JsonObject], bool], Callable[[JsonObject], Example]]
FORMATS: dict[str, Format] = {
    "chat": (lambda record: "messages" in record or _turns_have("role")(record), from_chat),
    "sharegpt": (_turns_have("from"), from_sharegpt),
    "alpaca": (_has_all_of(("instruction", "output"), ("instruction", "response")), from_alpaca),
    "prompt": (_has_all_of(*PAIRS), from_pair),
    "text": (_has_all_of(("text",)), from_text),
}
