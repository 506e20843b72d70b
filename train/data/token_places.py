"""Where tokens stand in their text. A tokenizer that keeps count of it takes an eighth longer.

A byte-level tokenizer (GPT-2's, and so SmolLM2's, Qwen's and Llama 3's) makes of a text tokens that are its bytes, in
their order: where one stands follows from how many bytes stand before it. Another tokenizer is asked for the places,
and so is each for a text that it changes first.
"""

from __future__ import annotations

import itertools
import json
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer

Span = tuple[int, int]


class Encoding(Protocol):
    """What is asked of a text's tokens, as tokenizers.Encoding answers it."""

    @property
    def ids(self) -> list[int]: ...
    def char_to_token(self, at: int, /) -> int | None: ...
    def token_to_chars(self, token: int, /) -> Span | None: ...


@dataclass(frozen=True, slots=True)
class ByBytes:
    """The same of tokens that are the text's bytes."""

    text: str
    ids: list[int]
    ends: NDArray[np.int64]
    """How many bytes stand before the end of each token."""

    def char_to_token(self, at: int, /) -> int:
        before = at if self.text.isascii() else len(self.text[:at].encode())
        return int(self.ends.searchsorted(before, side="right"))

    def token_to_chars(self, token: int, /) -> Span:
        """Its characters begin with one of which it may be a part only."""
        first, end = (int(self.ends[token - 1]) if token else 0), int(self.ends[token])
        if self.text.isascii():
            return first, end
        raw = self.text.encode()
        return len(raw[:first].decode(errors="ignore")), len(raw[:end].decode(errors="replace"))


@dataclass(frozen=True, slots=True, eq=False)
class ByteTokens:
    """What is known of a byte-level tokenizer."""

    lengths: NDArray[np.int64]
    """The bytes of each token."""
    lacking: bytes
    """Those of which there is no token."""


def encodings(tokenizer: Tokenizer, known: ByteTokens | None, texts: Sequence[str]) -> list[Encoding]:
    """Encodes texts, without the marks that a tokenizer itself puts before and behind them."""
    if known and all(_spelled(tokenizer, known, text) for text in texts):
        import numpy as np  # here: who only asks for the options of a program has none

        ids = [quick.ids for quick in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        ends = [known.lengths[np.frombuffer(array("I", some), "u4")].cumsum() for some in ids]
        if all(len(text.encode()) == (end[-1] if len(end) else 0) for text, end in zip(texts, ends, strict=True)):
            return list(map(ByBytes, texts, ids, ends))
    return list(tokenizer.encode_batch(texts, add_special_tokens=False))


def _spelled(tokenizer: Tokenizer, known: ByteTokens, text: str) -> bool:
    """Whether a text's tokens are its bytes: none is lacking, and the normalizer leaves it as it is."""
    raw, normalizer = text.encode(), tokenizer.normalizer
    whole = len(raw.translate(None, known.lacking)) == len(raw)
    return whole and (text.isascii() or not normalizer or bool(normalizer.normalize_str(text) == text))


def byte_tokens(tokenizer: Tokenizer) -> ByteTokens | None:
    """None of a tokenizer whose tokens are no bytes, or which does not say all of their places as they are."""
    import numpy as np

    names = [tokenizer.id_to_token(number) for number in range(tokenizer.get_vocab_size())]
    added = tokenizer.get_added_tokens_decoder()
    if None in names or not _takes_bytes(tokenizer) or any(mark.lstrip or mark.rstrip for mark in added.values()):
        return None
    lengths = np.array([len(name) for name in names])  # a letter in it is a byte; but a mark stands in it as it is
    for number, mark in added.items():
        lengths[number] = len(mark.content.encode())
    lacking = bytes(byte for byte, letter in enumerate(letters()) if tokenizer.token_to_id(letter) is None)
    return ByteTokens(lengths, lacking)


def _takes_bytes(tokenizer: Tokenizer) -> bool:
    """Whether nothing is put into a text, taken out of it, or left out where its tokens' places are said."""
    cuts = list(_parts(tokenizer.pre_tokenizer))
    return (
        [cut["add_prefix_space"] for cut in cuts if cut["type"] == "ByteLevel"] == [False]
        and all(cut["type"] in {"ByteLevel", "Digits", "Split"} and cut.get("behavior") != "Removed" for cut in cuts)
        and all(change["type"] == "NFC" for change in _parts(tokenizer.normalizer))
        and not any(mark.get("trim_offsets") for mark in _parts(tokenizer.post_processor))
    )


def _parts(made: Any) -> Iterator[dict[str, Any]]:
    """What a normalizer, a pre-tokenizer or a post-processor is made of, as in tokenizer.json."""
    todo = [json.loads(made.__getstate__())] if made is not None else []
    while todo:
        part = todo.pop()
        if part["type"] == "Sequence":
            todo += next(value for value in part.values() if isinstance(value, list))
        else:
            yield part


def letters() -> list[str]:
    """How a byte-level vocabulary writes each byte: as the character of its number, or the next free one above 255."""
    from tokenizers.pre_tokenizers import ByteLevel

    own, above = set(ByteLevel.alphabet()), itertools.count(256)
    return [chr(byte) if chr(byte) in own else chr(next(above)) for byte in range(256)]


def token_span(encoding: Encoding, start: int, end: int) -> Span:
    """The tokens that lie in text[start:end]."""
    first = next((token for at in range(start, end) if (token := encoding.char_to_token(at)) is not None), None)
    if first is None:
        return 0, 0
    last = next(token for at in range(end - 1, start - 1, -1) if (token := encoding.char_to_token(at)) is not None)
    behind = last + 1  # of a character's tokens the first was found
    while behind < len(encoding.ids) and (characters := encoding.token_to_chars(behind)) and characters[0] < end:
        behind += 1
    return first, behind


def begins_within(encoding: Encoding, at: int) -> bool:
    """Whether that place of the text is within a token, not before its first character."""
    token = encoding.char_to_token(at)
    characters = None if token is None else encoding.token_to_chars(token)
    return characters is not None and characters[0] < at
