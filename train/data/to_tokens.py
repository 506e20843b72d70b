"""Conversations into tokens: the model's own chat template, and which tokens of it are the answer."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby, pairwise
from typing import Any

from train.data.convert_record import BadRecord, Example, Function, Message, ToolCall
from train.data.packing import Sample
from train.data.token_places import ByteTokens, Encoding, Span, begins_within, byte_tokens, encodings, token_span
from train.errors import BadInput, first_line
from train.models.model_files import model_location
from train.plan.model.catalogue import Model

# for base models, which never saw a conversation: the headings of the Alpaca data set
PLAIN_TEMPLATE = """{{ bos_token or '' }}{% for m in messages %}\
{% if m['role'] == 'system' %}{{ m['content'] }}

{% elif m['role'] == 'assistant' %}### Response:
{{ m['content'] }}{{ eos_token }}

{% else %}### Instruction:
{{ m['content'] }}

{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}"""

# for models from nothing, which continue a text
CONTINUED = "{{ eos_token }}{% for m in messages %}{{ m['content'] }}{% endfor %}"

# A template that speaks of developers is one that knows them, which this one does not say (_known).
HAS_NONE = "not (messages | selectattr('role', 'in', ['system', 'devel' ~ 'oper']) | list)"
OPENS = f"""{{% if {HAS_NONE} %}}{{% set messages = [{{'role': 'system', 'content': SYSTEM}}] + (messages | list) %}}\
{{% endif %}}"""
ASKS = f"""{{% if {HAS_NONE} and messages[0]['role'] == 'user' %}}{{% set messages = [\
{{'role': 'user', 'content': SYSTEM ~ '\\n\\n' ~ messages[0]['content']}}] + (messages | list)[1:] %}}{{% endif %}}"""


@dataclass(frozen=True, slots=True)
class Chat:
    """A tokenizer with the template that goes with it."""

    tokenizer: Any
    template: str
    reason: str
    specials: frozenset[int]
    """Tokens that are marks, not text: the end of a turn is one of them."""
    date: str
    """The date for templates that write today's: one for all of a run, or its rows would change overnight."""
    byte_tokens: ByteTokens | None = None
    """What its tokens are, where they are bytes of the text."""

    @property
    def dated(self) -> bool:
        return "strftime_now" in self.template

    @property
    def token_bytes(self) -> int:
        return 2 if len(self.tokenizer) <= 1 << 16 else 4

    @property
    def pad_id(self) -> int:
        """Padding is masked by its own position ids, so any token does."""
        return int(self.tokenizer.pad_token_id or self.tokenizer.eos_token_id or 0)

    def hash(self) -> str:
        """The hash of all that turns text into tokens."""
        parts = (self.tokenizer.backend_tokenizer.to_str(), self.template, str(self.tokenizer.special_tokens_map))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def render(self, messages: Any, answer_next: bool = False, tools: Any = ()) -> str:
        """BadRecord where the template refuses the conversation, or passes over a part of it without a word."""
        for place, message in enumerate(messages):
            role = message["role"]
            if role not in ("user", "assistant") and passes_over(self, role, later=place > 0):
                raise BadRecord(f"the chat template writes no turn of the role '{role}'")
        return self.written(messages, answer_next, tools)

    def written(self, messages: Any, answer_next: bool = False, tools: Any = ()) -> str:
        day = datetime.date.fromisoformat(self.date)
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                chat_template=self.template,
                tokenize=False,
                add_generation_prompt=answer_next,
                **({"strftime_now": day.strftime} if self.dated else {}),
            )
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise BadRecord(f"the chat template refuses it: {first_line(error)}") from None
        return str(text)

    def default_system(self) -> str:
        """The system message that the template writes where a conversation brings none."""
        mark, user = "\ue000", {"role": "user", "content": "?"}
        try:
            bare, marked = self.render([user]), self.render([{"role": "system", "content": mark}, user])
        except BadRecord:
            return ""
        before, found, after = marked.partition(mark)
        is_default = found and bare.startswith(before) and bare.endswith(after) and len(bare) >= len(before + after)
        return bare[len(before) : len(bare) - len(after)].strip() if is_default else ""


@lru_cache
def passes_over(chat: Chat, role: str, *, later: bool) -> bool:
    """Whether the template leaves out what a turn of that role says; `later`: one that is not the first."""
    mark, name = "\ue000", "call00001"
    asked, answer = Message(role="user", content="?"), Message(role="assistant", content="x")
    call = ToolCall(id=name, type="function", function=Function(name="f", arguments={}))
    calling = _known(chat.template, Message(role="assistant", content="", tool_calls=[call]))
    said = Message(role=role, content=mark, name="f", tool_call_id=name)
    tried = [[said, asked], [said, asked, answer]]  # some write it only where one asks
    if later:
        tried = [[asked, calling, said] if role == "tool" else [asked, answer, said, asked]]
    try:
        return any(mark not in chat.written(turns) for turns in tried)
    except BadRecord:
        return False


def load_chat(model: Model, date: str = "", template: str = "", system: str = "") -> Chat:
    """`template`: of one's own, in place of the model's; `system`: a message before conversations that bring none."""
    from transformers import AutoTokenizer

    location = model_location(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(location, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no tokenizer can be loaded for {model.name}: {first_line(error)}",
            f"model: {location}",
            "check the name and the connection, or give a folder that holds tokenizer.json",
        ) from None
    if not tokenizer.is_fast:
        raise BadInput(
            f"{model.name} has no fast tokenizer, which is needed to know the answer's tokens from the question's",
            f"model: {location}",
            "use a variant of the model that ships tokenizer.json",
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")  # threads of ours do it, each a batch (data/in_threads.py)
    # Some are published as their last training step left them; rows are cut and filled here alone.
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    date = date or datetime.date.today().isoformat()
    specials = frozenset(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    written = template or tokenizer.chat_template
    if isinstance(written, dict):  # by their names
        written = written.get("default")
    of_model = "the model's own" if written else "### Instruction / ### Response (the model has none of its own)"
    reason = "your own" if template else of_model
    chat = Chat(tokenizer, written or PLAIN_TEMPLATE, reason, specials, date, byte_tokens(tokenizer.backend_tokenizer))
    return with_system(chat, system) if system else chat


def with_system(chat: Chat, system: str) -> Chat:
    """A chat whose template itself opens with that message, so that all who ask by it do so, wherever it is taken. One
    that writes no system message gets it before the first question."""
    chat, _ = without_system(chat)
    mark, user = "\ue000", {"role": "user", "content": "?"}
    try:
        writes = mark in chat.render([{"role": "system", "content": mark}, user])
    except BadRecord:
        writes = False
    opening = (OPENS if writes else ASKS).replace("SYSTEM", json.dumps(system, ensure_ascii=False))
    return replace(chat, template=opening + chat.template, reason=f"{chat.reason}, with your system message")


def without_system(chat: Chat) -> tuple[Chat, str]:
    """The chat with the template alone, and the system message of one's own that it opened with, if any."""
    for before, after in (opening.split("SYSTEM") for opening in (OPENS, ASKS)):
        if chat.template.startswith(before):
            system, end = json.JSONDecoder().raw_decode(chat.template, len(before))
            return replace(chat, template=chat.template[end + len(after) :]), system
    return chat, ""


def encode(chat: Chat, examples: list[Example], answers_only: bool) -> list[Sample | BadRecord]:
    """Tokens and targets of each example, in one call of the tokenizer; a text is wholly trained on."""
    rendered: list[tuple[str, list[Span]] | BadRecord] = [
        _rendered(chat, example, answers_only) for example in examples
    ]
    texts = [pair[0] for pair in rendered if not isinstance(pair, BadRecord)]
    encoded = iter(encodings(chat.tokenizer.backend_tokenizer, chat.byte_tokens, texts))
    begins = before_a_text(chat)
    samples: list[Sample | BadRecord] = []
    for example, pair in zip(examples, rendered, strict=True):
        if isinstance(pair, BadRecord):
            samples.append(pair)
        else:
            pieces = list(_pieces(chat, *pair, next(encoded)))
            samples.append(_sample(chat, example, pieces, begins))
    return samples


def _pieces(chat: Chat, text: str, spans: list[Span], whole: Encoding) -> Iterator[tuple[Encoding, list[Span]]]:
    """The text's tokens with the spans in it; in pieces where a token would reach from a question into its answer, as
    ' Paris' does behind 'assistant: ': whoever asks, asks with tokens that end there."""
    cuts = [start for start, _ in spans if begins_within(whole, start)]
    if not cuts:
        yield whole, spans
        return
    places = list(pairwise((0, *cuts, len(text))))
    found = encodings(chat.tokenizer.backend_tokenizer, chat.byte_tokens, [text[first:end] for first, end in places])
    for (first, end), piece in zip(places, found, strict=True):
        yield piece, [(start - first, stop - first) for start, stop in spans if first <= start < end]


def before_a_text(chat: Chat) -> list[int]:
    """What the tokenizer itself puts there. It may have a first mark and not use it: SmolLM2's begins a turn."""
    bare = chat.tokenizer.backend_tokenizer.encode("x", add_special_tokens=False).ids
    whole: list[int] = chat.tokenizer.backend_tokenizer.encode("x").ids
    return whole[: whole.index(bare[0])]


def _rendered(chat: Chat, example: Example, answers_only: bool) -> tuple[str, list[Span]] | BadRecord:
    if not example.messages:
        return example.text, [(0, len(example.text))]
    problem = None
    for messages in arrangements(chat.template, example.messages, example.tools):
        try:
            text = chat.render(messages, tools=example.tools)
            spans = answer_spans(chat, messages, text, example.tools) if answers_only else [(0, len(text.rstrip()))]
            if answers_only:
                counted = list(zip(range(len(spans), 0, -1), spans, strict=True))[-example.trained_turns :]
                spans = [span for place, span in counted if place not in example.untrained]
                if not spans:
                    return BadRecord("none of its answers is to be trained on (weight: 0)")
        except BadRecord as error:
            problem = problem or error
        else:
            return text, spans
    return problem or BadRecord("it has no turns")


def arrangements(
    template: str, messages: tuple[Message, ...], tools: Sequence[Any] = ()
) -> Iterator[tuple[Message, ...]]:
    """The conversation as it is, then in the forms that stricter templates take.

    Some know no developer, no tools, no calls of them, no system message, or no assistant who speaks first.
    """
    known = tuple(_known(template, message) for message in messages)
    if tools and "tools" not in template:
        known = _told(known, tools)
    system = [message for message in known if message["role"] == "system"]
    nothing: Message = {"role": "user", "content": ""}  # a system message may be all that there is
    rest = tuple(message for message in known if message["role"] != "system") or (nothing,)
    instructions = "\n\n".join(message["content"] for message in system)
    whole: list[Message] = [{**message, "content": instructions} for message in system[:1]]
    joined = (*whole, *rest)
    opened = next((at for at, message in enumerate(rest) if message["role"] != "assistant"), 0)
    asked: Message = {**rest[opened], "content": f"{instructions}\n\n{rest[opened]['content']}".strip()}
    yield known
    tried = [known]
    for form in (joined, (*joined[: len(joined) - len(rest)], *rest[opened:]), (asked, *rest[opened + 1 :])):
        if form not in tried:
            tried.append(form)
            yield form


def asked_text(chat: Chat, messages: Sequence[Any], tools: Any = ()) -> str:
    """The conversation up to where the model comes next, in the first form that the template takes."""
    problem = BadRecord("it has no turns")
    for arranged in arrangements(chat.template, tuple(messages), tools):
        try:
            return chat.render(arranged, answer_next=True, tools=tools)
        except BadRecord as error:
            problem = error
    raise problem


def _told(messages: tuple[Message, ...], tools: Sequence[Any]) -> tuple[Message, ...]:
    """The conversation whose first system message, or else first question, says which tools there are."""
    roles = [message["role"] for message in messages]
    if not {"system", "user"} & {*roles}:
        return _told(({"role": "system", "content": ""}, *messages), tools)
    at = roles.index("system" if "system" in roles else "user")
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    content = f"<tools>\n{lines}\n</tools>\n\n{messages[at]['content']}".strip()
    return (*messages[:at], {**messages[at], "content": content}, *messages[at + 1 :])


def _known(template: str, message: Message) -> Message:
    """The turn in the words of this template; where it has none for calls, as many chat models write them."""
    if message["role"] == "developer" and "developer" not in template:
        message = {**message, "role": "system"}
    if message.get("tool_calls") and "tool_calls" not in template:
        calls = [json.dumps(call["function"], ensure_ascii=False) for call in message["tool_calls"]]
        lines = [message["content"], *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]
        message = {"role": message["role"], "content": "\n".join(filter(None, lines))}
    return message


def answer_spans(chat: Chat, messages: tuple[Message, ...], text: str, tools: Any = ()) -> list[Span]:
    """Where the assistant's turns stand in the rendered text, each with the mark that ends the turn.

    A template may render a turn differently once others follow it (some drop a model's thinking), so a turn that is not
    found by rendering the conversation up to it is searched for by its content.
    """
    spans, after = [], 0
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        content = message["content"].strip()
        # An empty conversation cannot be rendered: a greeting begins where its words do.
        before = chat.render(messages[:number], True, tools) if number else text[: text.find(content)]
        upto = text if number + 1 == len(messages) else chat.render(messages[: number + 1], tools=tools)
        if not content and not (text.startswith(before) and text.startswith(upto)):
            raise BadRecord("the chat template writes a call of a tool differently once others follow")
        start = len(before) if text.startswith(before) else text.find(content, _behind(text, messages[:number], after))
        if text.startswith(upto):
            end = len(upto.rstrip())
        else:
            end_mark = upto[upto.rfind(content) + len(content) :].rstrip()
            end = text.find(content, start) + len(content)
            end += len(end_mark) if text.startswith(end_mark, end) else 0
        if start < after or content not in text[start:end]:
            raise BadRecord("the chat template changes the answer's text")
        spans.append((start, end))
        after = end
    return spans


def _behind(text: str, messages: Sequence[Message], after: int) -> int:
    """Where what was said last ends: the words of an answer may stand in its question as well."""
    said = messages[-1]["content"].strip() if messages else ""
    return max(after, text.find(said, after) + len(said)) if said in text[after:] else after


def _sample(chat: Chat, example: Example, pieces: list[tuple[Encoding, list[Span]]], begins: list[int]) -> Sample:
    tokens, trained = list[int](), bytearray()
    for encoding, spans in pieces:
        flags = bytearray(len(encoding.ids))
        for start, end in spans:
            first, last = token_span(encoding, start, end)
            flags[first:last] = b"\1" * (last - first)
        tokens, trained = [*tokens, *encoding.ids], trained + flags
    if example.messages:
        ended = 1 not in trained or tokens[trained.rindex(1)] in chat.specials
    else:
        ended, tokens, trained = False, [*begins, *tokens], bytearray(len(begins)) + trained
    eos = chat.tokenizer.eos_token_id
    if not ended and eos is not None:  # without a mark behind the answer, a model never learns to stop
        end = trained.rfind(1) + 1
        tokens, trained = [*tokens[:end], eos], trained[:end] + b"\1"
    return tokens, trained


def shown(chat: Chat, tokens: Sequence[int], trained: Sequence[int]) -> str:
    """A sample on one line, what is learned from between marks."""
    start, pieces = 0, []
    for learned, flags in groupby(trained, key=bool):
        end = start + len(list(flags))
        text = str(chat.tokenizer.decode(list(tokens[start:end]))).replace("\n", "\\n")
        pieces.append(f"«{text}»" if learned else text)
        start = end
    return "".join(pieces)


def end_ids(chat: Chat) -> list[int]:
    """The marks that end an answer: the tokenizer's own, and the one that the template writes behind a turn."""
    turns = (Message(role="user", content="?"), Message(role="assistant", content="x"))
    [sample] = encode(chat, [Example(turns)], answers_only=True)
    last = [] if isinstance(sample, BadRecord) else [number for number, flag in zip(*sample, strict=True) if flag][-1:]
    eos = chat.tokenizer.eos_token_id
    return sorted({*last, *([] if eos is None else [int(eos)])})
