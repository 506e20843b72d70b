"""The places of tokens in their text, counted in bytes: those that the tokenizer itself would say."""

import copy
import random
from dataclasses import replace

import pytest
from tokenizers import AddedToken, normalizers, pre_tokenizers, processors

from train.data.convert_record import Example
from train.data.to_tokens import encode, load_chat
from train.data.token_places import ByBytes, begins_within, byte_tokens, encodings, token_span
from train.plan.model.catalogue import resolve_model

LETTERS = "abc  .\n12é世🙂ﬁ한"
COMPOSED, TAKEN_APART = "caf\u00e9", "cafe\u0301"


@pytest.fixture(scope="module", params=["tiny", "smollm2-135m"])
def chat(request):
    return load_chat(resolve_model(request.param))


def changed(tokenizer, **parts):
    """A copy of it with other parts."""
    other = copy.deepcopy(tokenizer)
    for name, part in parts.items():
        setattr(other, name, part)
    return other


def texts(seed):
    dice = random.Random(seed)
    return ["".join(dice.choices([*LETTERS, "<|im_end|>", "</s>"], k=dice.randrange(1, 30))) for _ in range(200)]


def test_each_token_and_span_is_where_the_tokenizer_says(chat):
    tokenizer = chat.tokenizer.backend_tokenizer
    for text, counted, said in zip(
        texts(0),
        encodings(tokenizer, chat.byte_tokens, texts(0)),
        tokenizer.encode_batch(texts(0), add_special_tokens=False),
        strict=True,
    ):
        assert isinstance(counted, ByBytes)
        assert counted.ids == said.ids
        assert [counted.char_to_token(at) for at in range(len(text))] == [
            said.char_to_token(at) for at in range(len(text))
        ], text
        assert [counted.token_to_chars(token) for token in range(len(said))] == said.offsets, text
        for start in range(len(text)):
            assert begins_within(counted, start) == begins_within(said, start), (text, start)
            for end in range(start, len(text) + 1):
                assert token_span(counted, start, end) == token_span(said, start, end), (text, start, end)


def test_samples_are_the_same_either_way(chat):
    """Of conversations and of texts, whatever they are written in."""
    asked = [
        ({"role": "user", "content": q}, {"role": "assistant", "content": a})
        for q, a in zip(texts(1), texts(2), strict=True)
    ]
    examples = [*map(Example, asked), *(Example(text=text) for text in texts(3))]
    assert encode(chat, examples, True) == encode(replace(chat, byte_tokens=None), examples, True)


def test_a_text_that_the_normalizer_changes_is_asked_about(chat):
    tokenizer = changed(chat.tokenizer.backend_tokenizer, normalizer=normalizers.NFC())
    known = byte_tokens(tokenizer)
    assert [type(one) for one in encodings(tokenizer, known, [COMPOSED, "plain"])] == [ByBytes] * 2
    found = encodings(tokenizer, known, ["plain", TAKEN_APART])
    assert not any(isinstance(one, ByBytes) for one in found)


def test_a_text_with_a_byte_without_a_token_is_asked_about():
    """SmolLM2 has no token for the first byte of such letters, and writes another."""
    chat = load_chat(resolve_model("smollm2-135m"))
    tokenizer = chat.tokenizer.backend_tokenizer
    (found,) = encodings(tokenizer, chat.byte_tokens, ["x\U00050000y"])
    assert not isinstance(found, ByBytes)


@pytest.mark.parametrize(
    "parts",
    [
        {"normalizer": normalizers.Lowercase()},
        {"normalizer": normalizers.Sequence([normalizers.NFC(), normalizers.Prepend("_")])},
        {"pre_tokenizer": pre_tokenizers.Metaspace()},
        {"pre_tokenizer": pre_tokenizers.ByteLevel(add_prefix_space=True)},
        {"pre_tokenizer": pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.ByteLevel()])},
        {
            "pre_tokenizer": pre_tokenizers.Sequence(
                [pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
            )
        },
        {"post_processor": processors.ByteLevel(trim_offsets=True)},
    ],
)
def test_of_a_tokenizer_that_takes_or_says_something_else_nothing_is_counted(chat, parts):
    tokenizer = chat.tokenizer.backend_tokenizer
    assert byte_tokens(tokenizer)
    assert byte_tokens(changed(tokenizer, **parts)) is None


def test_a_mark_that_takes_the_spaces_around_it_is_not_counted(chat):
    other = copy.deepcopy(chat.tokenizer.backend_tokenizer)
    other.add_tokens([AddedToken("<mask>", lstrip=True)])
    assert byte_tokens(other) is None


def test_tokens_that_do_not_add_up_to_their_text_are_asked_about(chat):
    """Whatever was made out of a tokenizer's parts: a wrong place would train a question as an answer."""
    tokenizer, known = chat.tokenizer.backend_tokenizer, chat.byte_tokens
    wrong = replace(known, lengths=known.lengths + 1)
    assert [isinstance(encodings(tokenizer, one, ["a word"])[0], ByBytes) for one in (known, wrong)] == [True, False]
