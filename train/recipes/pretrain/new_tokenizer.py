"""A tokenizer for a model from nothing: byte-level BPE that is learned from the texts, single bytes, single characters,
or that of a model that is there. The same texts give the same file on every machine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from train.data.to_tokens import CONTINUED, load_chat
from train.errors import BadInput
from train.plan.model.catalogue import resolve_model
from train.plan.settings.file_settings import TOKENIZERS

END, UNKNOWN = "<|endoftext|>", "<unk>"
LEARNED_FROM_CHARS = 1 << 30
"""The first so many characters are enough to learn how to cut words; more only take memory."""


class Made:
    """Text into numbers, and the mark before and after a text."""

    def __init__(self, fast: Any) -> None:
        self.fast, self.size, self.end_id = fast.backend_tokenizer, len(fast), int(fast.eos_token_id)

    @property
    def token_bytes(self) -> int:
        return 2 if self.size <= 1 << 16 else 4

    def encode(self, text: str) -> list[int]:
        return list(self.fast.encode(text, add_special_tokens=False).ids)


def tokenizer_hash(name: str) -> str:
    """The hash of a tokenizer that is there already; one that is made of the texts is known by them."""
    return name if name in TOKENIZERS else load_chat(resolve_model(name)).hash()


def load_or_make(name: str, most: int, texts: Iterable[str], folder: Path) -> Made:
    fast = wrapped(MAKERS[name](texts, most)) if name in TOKENIZERS else existing(name)
    fast.chat_template = CONTINUED
    fast.save_pretrained(folder)
    return Made(fast)


def existing(name: str) -> Any:
    fast = load_chat(resolve_model(name)).tokenizer
    if fast.eos_token_id is None:
        raise BadInput(f"tokenizer: '{name}' has no mark for the end of a text", fix="use tokenizer=bpe")
    return fast


def wrapped(tokenizer: Any) -> Any:
    """The tokenizer as transformers loads it. It gets no mark for filling rows up: rows are filled here alone."""
    from transformers import PreTrainedTokenizerFast

    known = {"unk_token": UNKNOWN} if tokenizer.token_to_id(UNKNOWN) is not None else {}
    marks = {"bos_token": END, "eos_token": END, **known}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False, **marks)


def by_bytes(model: Any) -> Any:
    from tokenizers import Tokenizer, decoders, pre_tokenizers

    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


def make_bpe(texts: Iterable[str], most: int) -> Any:
    from tokenizers import models, trainers

    tokenizer = by_bytes(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=most, special_tokens=[END], initial_alphabet=alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator(beginning(texts), trainer)
    return tokenizer


def make_bytes(texts: Iterable[str], most: int) -> Any:
    from tokenizers import models

    numbers = {token: number for number, token in enumerate([END, *alphabet()])}
    tokenizer = by_bytes(models.BPE(vocab=numbers, merges=[]))
    tokenizer.add_special_tokens([END])
    return tokenizer


def make_chars(texts: Iterable[str], most: int) -> Any:
    """The most frequent ones; those beyond become one token that says so."""
    from tokenizers import Tokenizer, decoders, models

    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(text)
    usual = sorted(seen, key=lambda char: (-seen[char], char))[: max(1, most - 2)]
    numbers = {token: number for number, token in enumerate([END, UNKNOWN, *usual])}
    tokenizer = Tokenizer(models.BPE(vocab=numbers, merges=[], unk_token=UNKNOWN))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([END, UNKNOWN])
    return tokenizer


def beginning(texts: Iterable[str]) -> Iterator[str]:
    taken = 0
    for text in texts:
        yield text
        taken += len(text)
        if taken >= LEARNED_FROM_CHARS:
            return


MAKERS = {"bpe": make_bpe, "bytes": make_bytes, "chars": make_chars}
