"""Answers of a model, and of a model before and after training."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch

from train.models import backends
from train.plan.catalogue import resolve_model
from train.data.chat import load_chat
from train.engine.device import precision_of
from train.models.locate import model_folder
from train.results.finished_run import FinishedRun
from train.data.rows import date_of

Messages = list[dict[str, str]]


class Questioner:
    """Greedy answers: the same question gets the same answer, so that a change is the training's."""

    def __init__(self, model: Any, base_folder: str, answer_tokens: int, device: str, *, rows: str | Path) -> None:
        self.model = model
        self.chat = load_chat(resolve_model(base_folder), date_of(Path(rows)))
        self.answer_tokens = answer_tokens
        self.device = device

    def __call__(self, question: Messages, *, on_text: Callable[[str], None] | None = None) -> str:
        """The whole answer; `on_text` gets each part of it as it comes."""
        prompt = self.chat.render(question, answer_next=True)
        tokens = self.chat.tokenizer(prompt, add_special_tokens=False, return_tensors="pt").to(self.device)
        self.model.eval()
        with torch.no_grad():
            out = self.model.generate(
                input_ids=tokens["input_ids"],
                attention_mask=tokens["attention_mask"],
                max_new_tokens=self.answer_tokens,
                do_sample=False,
                use_cache=True,
                pad_token_id=self.chat.pad_id,
                streamer=Listener(self.chat.tokenizer, on_text) if on_text else None,
            )
        answer = out[0, tokens["input_ids"].shape[1] :]
        return str(self.chat.tokenizer.decode(answer, skip_special_tokens=True)).strip()


class Listener:
    """Gets the tokens of an answer one by one, and passes their text on as far as it is certain."""

    def __init__(self, tokenizer: Any, on_text: Callable[[str], None]) -> None:
        self.tokenizer = tokenizer
        self.on_text = on_text
        self.tokens: list[int] | None = None
        self.passed_on = 0

    def put(self, tokens: torch.Tensor) -> None:
        if self.tokens is None:  # the question comes first
            self.tokens = []
            return
        self.tokens += tokens.flatten().tolist()
        text = self.tokenizer.decode(self.tokens, skip_special_tokens=True)
        if not text.endswith("\ufffd"):  # half a letter: the other half is the next token
            self.on_text(text[self.passed_on :])
            self.passed_on = len(text)

    def end(self) -> None:
        pass


class BeforeAndAfter:
    """The base model of a run and what the run has made of it, which are one model where it made an adapter."""

    def __init__(self, run: FinishedRun, answer_tokens: int) -> None:
        self.device = "cuda:0" if torch.cuda.is_available() else "cpu"
        base_folder = model_folder(run.base)
        options: dict[str, Any] = {
            "device": self.device,
            "precision": precision_of(self.device),
            "max_seq_length": run.max_seq_length,
            "load_in": run.load_in,
        }
        build = backends.get("hf").build
        self.without: Callable[[], AbstractContextManager[Any]] = nullcontext
        if run.is_adapter:
            after: Any = build(backends.ModelSpec(folder=base_folder, adapter=run.folder, **options))
            before, self.without = after, after.disable_adapter
        else:
            before, after = (
                build(backends.ModelSpec(folder=str(folder), method="base", **options))
                for folder in (base_folder, run.folder)
            )
        self._before, self._after = (
            Questioner(model, base_folder, answer_tokens, self.device, rows=run.dataset) for model in (before, after)
        )

    def before(self, question: Messages, **how: Any) -> str:
        with self.without():
            return self._before(question, **how)

    def after(self, question: Messages, **how: Any) -> str:
        return self._after(question, **how)
