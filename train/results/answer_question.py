"""A model answers a question, word by word where somebody listens."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import torch
from transformers import TextStreamer

from train.data.to_tokens import Chat, asked_text, end_ids
from train.models.wrapper import text_of

Messages = list[dict[str, str]]


class Questioner:
    """Greedy answers: the same question gets the same answer, so that a change is the training's. `drawn`: by lot, but
    the same each time; a small model from nothing would repeat itself."""

    def __init__(self, model: Any, chat: Chat, answer_tokens: int, device: str, *, drawn: bool = False) -> None:
        self.how = {"do_sample": True, "temperature": 0.8, "top_k": 50} if drawn else {"do_sample": False}
        self.model = model
        self.chat = chat
        own = model.generation_config.eos_token_id  # none, one or several
        self.ends = sorted({*end_ids(chat), *([own] if isinstance(own, int) else own or ())})
        self.answer_tokens = answer_tokens
        self.device = device

    def __call__(self, question: Messages, *, on_text: Callable[[str], None] | None = None) -> str:
        """The whole answer; `on_text` gets each part of it as it comes."""
        prompt = asked_text(self.chat, question)
        tokens = self.chat.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self.device)
        self.model.eval()
        torch.manual_seed(zlib.crc32(prompt.encode()))
        with torch.no_grad():
            out = self.model.generate(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                max_new_tokens=self._room(tokens["input_ids"].shape[1]),
                **self.how,
                use_cache=True,
                eos_token_id=self.ends,
                pad_token_id=self.chat.pad_id,
                streamer=Listener(self.chat.tokenizer, on_text) if on_text else None,
            )
        answer = out[0, tokens["input_ids"].shape[1] :]
        return str(self.chat.tokenizer.decode(answer, skip_special_tokens=True)).strip()

    def _room(self, prompt_tokens: int) -> int:
        """How long an answer may be within what the model has learned to see at once."""
        positions = int(getattr(text_of(self.model.config), "max_position_embeddings", 0) or 1 << 30)
        return max(1, min(self.answer_tokens, positions - prompt_tokens))


class Listener(TextStreamer):  # type: ignore[misc]
    """Passes the text of an answer on as it comes, word by word."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.on_text = on_text

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self.on_text(text)
