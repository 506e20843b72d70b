"""Answers of a model, and of a model before and after training."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import TextStreamer

from train.data.rows import date_of, template_of
from train.data.to_tokens import Chat, load_chat
from train.models import backends
from train.models.device import precision_of
from train.models.model_files import model_folder
from train.models.wrapper import text_of
from train.plan.model.catalogue import Model, resolve_model
from train.results.finished_run import FinishedRun

Messages = list[dict[str, str]]


class Questioner:
    """Greedy answers: the same question gets the same answer, so that a change is the training's. `drawn`: by lot, but
    the same each time; a small model from nothing would repeat itself."""

    def __init__(self, model: Any, chat: Chat, answer_tokens: int, device: str, *, drawn: bool = False) -> None:
        self.how = {"do_sample": True, "temperature": 0.8, "top_k": 50} if drawn else {"do_sample": False}
        self.model = model
        self.chat = chat
        self.answer_tokens = answer_tokens
        self.device = device

    def __call__(self, question: Messages, *, on_text: Callable[[str], None] | None = None) -> str:
        """The whole answer; `on_text` gets each part of it as it comes."""
        prompt = self.chat.render(question, answer_next=True)
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


def chat_of(run: FinishedRun) -> Chat:
    """The chat of a model from nothing, which has its own tokenizer."""
    return load_chat(Model(name=run.run, source="folder", reason="made by the run", folder=run.tokenizer))


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run has made, not built yet."""

    chat: Chat
    shape: str
    """A folder whose config.json says how large it is."""
    spec: backends.ModelSpec

    @classmethod
    def of(cls, run: FinishedRun) -> Trained:
        device = "cuda:0" if torch.cuda.is_available() else "cpu"
        made = backends.ModelSpec(folder=str(run.folder), method="base", device=device, precision=precision_of(device))
        if not run.base:
            return cls(chat_of(run), str(run.folder), made)
        made = replace(made, max_seq_length=run.max_seq_length, load_in=run.load_in)
        base, rows = model_folder(run.base), Path(run.dataset)
        if run.is_adapter:
            made = replace(made, folder=base, method="lora", adapter=run.folder)
        return cls(load_chat(resolve_model(base), date_of(rows), template_of(rows)), base, made)


class OneModel:
    """What a run has made from nothing: there is no model before it."""

    names = ("model",)

    def __init__(self, run: FinishedRun, answer_tokens: int) -> None:
        made = Trained.of(run)
        model = backends.get("hf").build(made.spec)
        self.model = Questioner(model, made.chat, answer_tokens, made.spec.device, drawn=True)


class BeforeAndAfter:
    """The base model of a run and what the run has made of it, which are one model where it made an adapter."""

    names = ("before", "after")

    def __init__(self, run: FinishedRun, answer_tokens: int) -> None:
        made, build = Trained.of(run), backends.get("hf").build
        self.without: Callable[[], AbstractContextManager[Any]] = nullcontext
        after: Any = build(made.spec)
        if run.is_adapter:
            before, self.without = after, after.disable_adapter
        else:
            before = build(replace(made.spec, folder=made.shape))
        self._before, self._after = (
            Questioner(model, made.chat, answer_tokens, made.spec.device) for model in (before, after)
        )

    def before(self, question: Messages, **how: Any) -> str:
        with self.without():
            return self._before(question, **how)

    def after(self, question: Messages, **how: Any) -> str:
        return self._after(question, **how)


def models_of(run: FinishedRun, answer_tokens: int) -> OneModel | BeforeAndAfter:
    """Each of its `names` answers a question."""
    return BeforeAndAfter(run, answer_tokens) if run.base else OneModel(run, answer_tokens)
