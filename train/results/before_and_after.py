"""The model before and after training, both ready to answer questions."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from train.data.rows import date_of, template_of
from train.data.to_tokens import Chat, load_chat
from train.models import backends
from train.models.device import best_device, precision_of
from train.models.model_files import model_folder
from train.plan.model.catalogue import Model, resolve_model
from train.results.answer_question import Messages, Questioner
from train.results.finished_run import FinishedRun


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
        device = best_device()
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
