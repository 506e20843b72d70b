"""What a request may say, and what it gets back, in the form of OpenAI's API: chat completions and completions.

What would change an answer and is not done here is refused in one sentence; what says nothing of the answer (user,
metadata, …) is passed over, as programs send much of it.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from console.serve.machine import Answer, Request

Body = Mapping[str, Any]
Frame = dict[str, Any]
"""An answer, or a part of one, as OpenAI's servers send it."""

ROLES = ("system", "developer", "user", "assistant", "tool")
MOST_STOPS = 4
SEEDS = range(-(1 << 63), 1 << 63)
"""What vLLM takes as one, and OpenAI."""
COLDEST = 1e-6
"""Up to it the likeliest token is drawn anyway, and a score that is divided by much less is infinite."""
NOT_DONE: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False, 0),
    "top_logprobs": (0,),
    "echo": (False,),
    "suffix": ("",),
    "tools": ([],),
    "functions": ([],),
    "logit_bias": ({},),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "audio": (),
    "prediction": (),
    "response_format": ({"type": "text"},),
    "modalities": (["text"],),
    "tool_choice": ("none", "auto"),
    "reasoning_effort": ("none",),
    "web_search_options": (),
    # of other servers' own, which programs send as well
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "stop_token_ids": ([],),
    "structured_outputs": ({},),
    "guided_json": (),
    "chat_template_kwargs": ({},),
    "continue_final_message": (False,),
}
"""Each with the values that ask for nothing; null asks for nothing either."""


class Refused(Exception):
    """What is wrong with a request: a sentence, the parameter, and OpenAI's words for its kind."""

    def __init__(
        self, what: str, param: str | None = None, *, status: int = 400, kind: str = "invalid_request_error",
        code: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(what)
        self.status = status
        self.body = {"error": {"message": what, "type": kind, "param": param, "code": code}}


@dataclass(frozen=True, slots=True)
class Wanted:
    request: Request
    chat: bool
    stream: bool
    usage: bool
    """Whether a stream ends with the numbers of tokens."""


def wanted(body: object, run: str, *, chat: bool) -> Wanted:
    if not isinstance(body, dict):
        raise Refused("the body is no JSON object")
    model = body.get("model")
    if model not in (None, run):
        what = f"there is no model {model!r} here; there is '{run}'"
        raise Refused(what, "model", status=404, code="model_not_found")
    for name, nothing in NOT_DONE.items():
        if body.get(name) is not None and body[name] not in nothing:
            raise Refused(f"{name}: is not done here; leave it out", name)
    options = body.get("stream_options") or {}
    if not isinstance(options, dict):
        raise Refused("stream_options: must be an object", "stream_options")
    asks: dict[str, object] = {"messages": messages(body)} if chat else {"prompt": prompt(body)}
    most = "max_completion_tokens" if body.get("max_completion_tokens") is not None else "max_tokens"
    usual = None if chat else 16  # as OpenAI's completions
    asks |= {
        "most": whole(body, most, usual, least=1),
        "temperature": temperature if (temperature := number(body, "temperature", 1.0, 0.0, 2.0)) > COLDEST else 0.0,
        "top_p": number(body, "top_p", 1.0, 0.0, 1.0) or 1e-9,
        "seed": seed(body),
        "stop": stops(body),
    }
    return Wanted(Request(asks), chat, flag(body, "stream"), bool(options.get("include_usage")))


def messages(body: Body) -> list[dict[str, str]]:
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise Refused("messages: must be a list of at least one message", "messages")
    return [message(one, f"messages[{place}]") for place, one in enumerate(given)]


def message(one: object, where: str) -> dict[str, str]:
    if not isinstance(one, dict) or one.get("role") not in ROLES:
        raise Refused(f"{where}: must be an object whose role is one of {', '.join(ROLES)}", where)
    content = one.get("content")
    if isinstance(content, list):
        kinds = [part.get("type") if isinstance(part, dict) else None for part in content]
        if any(kind != "text" for kind in kinds) or not all(isinstance(part.get("text"), str) for part in content):
            raise Refused(f"{where}: its content must be text; this model reads nothing else", where)
        content = "".join(part["text"] for part in content)
    if not isinstance(content, str) or one.get("tool_calls") or one.get("function_call") is not None:
        raise Refused(f"{where}: its content must be text, without calls of tools", where)
    return {"role": str(one["role"]), "content": in_whole_characters(content, where)}


def prompt(body: Body) -> str:
    given = body.get("prompt", "")
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
    if not isinstance(given, str):
        raise Refused("prompt: must be one text", "prompt")
    return in_whole_characters(given, "prompt")


def in_whole_characters(text: str, where: str) -> str:
    """The text. Half a character would end the process of every machine that reads it, and all answers there."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(f"{where}: has half a character, as of a cut emoji, which no model reads", where) from None
    return text


def stops(body: Body) -> list[str]:
    given = body.get("stop")
    words = [given] if isinstance(given, str) else given or []
    if not isinstance(words, list) or len(words) > MOST_STOPS or not all(isinstance(word, str) for word in words):
        raise Refused(f"stop: must be a text or at most {MOST_STOPS} of them", "stop")
    return [word for word in words if word]


def number(body: Body, name: str, usual: float, least: float, most: float) -> float:
    given = usual if body.get(name) is None else body[name]
    if isinstance(given, bool) or not isinstance(given, int | float) or not least <= given <= most:
        raise Refused(f"{name}: must be a number from {least:g} to {most:g}", name)
    return float(given)


def whole(body: Body, name: str, usual: int | None, *, least: int | None) -> int | None:
    given = usual if body.get(name) is None else body[name]
    if given is None:
        return None
    if isinstance(given, bool) or not isinstance(given, int) or (least is not None and given < least):
        raise Refused(f"{name}: must be a whole number{'' if least is None else f' of at least {least}'}", name)
    return given


def seed(body: Body) -> int | None:
    given = whole(body, "seed", secrets.randbits(62), least=None)
    if given not in SEEDS:
        raise Refused("seed: must be a whole number of 64 bits", "seed")
    return given


def flag(body: Body, name: str) -> bool:
    given = body.get(name) or False
    if not isinstance(given, bool):
        raise Refused(f"{name}: must be true or false", name)
    return given


# -- answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """The frame of one answer."""

    run: str
    chat: bool
    name: str
    made_at: int

    @classmethod
    def new(cls, run: str, *, chat: bool) -> Form:
        return cls(run, chat, f"{'chatcmpl' if chat else 'cmpl'}-{secrets.token_hex(12)}", int(time.time()))

    def whole(self, answer: Answer) -> Frame:
        content = {"message": {"role": "assistant", "content": answer.text}} if self.chat else {"text": answer.text}
        choice: dict[str, object] = {"index": 0, **content, "logprobs": None, "finish_reason": answer.ended}
        return self._framed("", [choice]) | {"usage": usage(answer)}

    def part(self, text: str, *, first: bool = False) -> Frame:
        content: dict[str, object] = {"text": text}
        if self.chat:
            content = {"delta": ({"role": "assistant"} if first else {}) | {"content": text}}
        return self._framed(".chunk", [{"index": 0, **content, "logprobs": None, "finish_reason": None}])

    def last(self, answer: Answer) -> Frame:
        content: dict[str, object] = {"delta": {}} if self.chat else {"text": ""}
        return self._framed(".chunk", [{"index": 0, **content, "logprobs": None, "finish_reason": answer.ended}])

    def used(self, answer: Answer) -> Frame:
        return self._framed(".chunk", []) | {"usage": usage(answer)}

    def _framed(self, more: str, choices: list[dict[str, object]]) -> Frame:
        kind = f"chat.completion{more}" if self.chat else "text_completion"
        return {"id": self.name, "object": kind, "created": self.made_at, "model": self.run, "choices": choices}


def usage(answer: Answer) -> dict[str, int]:
    made = len(answer.tokens)
    return {"prompt_tokens": answer.asked, "completion_tokens": made, "total_tokens": answer.asked + made}
