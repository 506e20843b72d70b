"""Conversations into tokens: the model's own chat template, and which tokens of it are the answer."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

from train.catalogue import Model, model_location
from train.errors import BadInput
from train.formats import BadRecord, Example
from train.packing import Sample

# for base models, which never saw a conversation: the headings of the Alpaca data set
PLAIN_TEMPLATE = """{{ bos_token or '' }}{% for m in messages %}\
{% if m['role'] == 'system' %}{{ m['content'] }}

{% elif m['role'] == 'assistant' %}### Response:
{{ m['content'] }}{{ eos_token }}

{% else %}### Instruction:
{{ m['content'] }}

{% endif %}{% endfor %}{% if add_generation_prompt %}### Response:
{% endif %}"""

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Chat:
    """A tokenizer with the template that goes with it."""

    tokenizer: Any
    template: str
    reason: str
    specials: frozenset[int]
    """Tokens that are marks, not text: the end of a turn is one of them."""

    @property
    def token_bytes(self) -> int:
        return 2 if len(self.tokenizer) <= 1 << 16 else 4

    @property
    def pad_id(self) -> int:
        """Padding is masked by its own position ids, so any token does."""
        return int(self.tokenizer.pad_token_id or self.tokenizer.eos_token_id or 0)

    def hash(self) -> str:
        """Of all that turns text into tokens."""
        parts = (self.tokenizer.backend_tokenizer.to_str(), self.template, str(self.tokenizer.special_tokens_map))
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def render(self, messages: Any, answer_next: bool = False) -> str:
        try:
            text = self.tokenizer.apply_chat_template(
                list(messages), chat_template=self.template, tokenize=False, add_generation_prompt=answer_next
            )
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise BadRecord(f"the chat template refuses it: {str(error).splitlines()[0]}") from None
        return str(text)


def load_chat(model: Model) -> Chat:
    from transformers import AutoTokenizer

    location = model_location(model)
    try:
        tokenizer = AutoTokenizer.from_pretrained(location)
    except (OSError, ValueError) as error:
        raise BadInput(
            f"no tokenizer can be loaded for {model.name}: {str(error).splitlines()[0]}",
            f"model: {location}",
            "check the name and the connection, or give a folder that holds tokenizer.json",
        ) from None
    if not tokenizer.is_fast:
        raise BadInput(
            f"{model.name} has no fast tokenizer, which is what tells the answer's tokens from the question's",
            f"model: {location}",
            "use a variant of the model that ships tokenizer.json",
        )
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "true")
    marks = frozenset(number for number, token in tokenizer.added_tokens_decoder.items() if token.special)
    if tokenizer.chat_template:
        return Chat(tokenizer, tokenizer.chat_template, "the model's own", marks)
    return Chat(tokenizer, PLAIN_TEMPLATE, "### Instruction / ### Response (the model has none of its own)", marks)


def encode(chat: Chat, examples: list[Example], answers_only: bool) -> list[Sample | BadRecord]:
    """Tokens and targets of each example, in one call of the tokenizer; a text is wholly trained on."""
    rendered: list[tuple[str, list[Span]] | BadRecord] = [
        _rendered(chat, example, answers_only) for example in examples
    ]
    good = [pair for pair in rendered if not isinstance(pair, BadRecord)]
    encodings = iter(
        chat.tokenizer.backend_tokenizer.encode_batch([text for text, _ in good], add_special_tokens=False)
    )
    result: list[Sample | BadRecord] = []
    for example, pair in zip(examples, rendered, strict=True):
        result.append(pair if isinstance(pair, BadRecord) else _sample(chat, example, next(encodings), pair[1]))
    return result


def _rendered(chat: Chat, example: Example, answers_only: bool) -> tuple[str, list[Span]] | BadRecord:
    if not example.messages:
        return example.text, [(0, len(example.text))]
    try:
        text = chat.render(example.messages)
        return text, answer_spans(chat, example, text) if answers_only else [(0, len(text.rstrip()))]
    except BadRecord as error:
        return error


def answer_spans(chat: Chat, example: Example, text: str) -> list[Span]:
    """Where the assistant's turns stand in the rendered text, each with the mark that ends the turn.

    A template may render a turn differently once others follow it (some drop a model's thinking), so a turn that is not
    found by rendering the conversation up to it is searched for by its content.
    """
    spans, after = [], 0
    for number, message in enumerate(example.messages):
        if message["role"] != "assistant":
            continue
        before = chat.render(example.messages[:number], answer_next=True)
        upto = text if number + 1 == len(example.messages) else chat.render(example.messages[: number + 1])
        content = message["content"].strip()
        start = len(before) if text.startswith(before) else text.find(content, after)
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


def _sample(chat: Chat, example: Example, encoding: Any, spans: list[Span]) -> Sample:
    tokens = list(encoding.ids)
    trained = [0] * len(tokens)
    for start, end in spans:
        first, last = token_span(encoding, start, end)
        trained[first:last] = [1] * (last - first)
    if example.messages:
        ended = not any(trained) or tokens[_last_target(trained)] in chat.specials
    else:
        bos, ended = chat.tokenizer.bos_token_id, False
        tokens, trained = ([bos, *tokens], [0, *trained]) if bos is not None else (tokens, trained)
    eos = chat.tokenizer.eos_token_id
    if not ended and eos is not None:  # without a mark behind the answer, a model never learns to stop
        tokens, trained = [*tokens, eos], [*trained, 1]
    return tokens, trained


def _last_target(trained: list[int]) -> int:
    return len(trained) - 1 - trained[::-1].index(1)


def token_span(encoding: Any, start: int, end: int) -> Span:
    """The tokens that lie in text[start:end]; one that begins before it belongs to the question."""
    first = next((token for at in range(start, end) if (token := encoding.char_to_token(at)) is not None), None)
    if first is None:
        return 0, 0
    if encoding.token_to_chars(first)[0] < start:
        first += 1
    last = next(token for at in range(end - 1, start - 1, -1) if (token := encoding.char_to_token(at)) is not None)
    return first, max(first, last + 1)
