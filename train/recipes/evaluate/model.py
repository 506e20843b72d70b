"""The base and its adapter as lm-evaluation-harness asks a model: its own HFLM, over the model that we have loaded.

Requests come in any number and order; they are computed block by block (requests.py), each by itself.
"""

from __future__ import annotations

import itertools
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from transformers import AutoTokenizer

from train.models import backends
from train.models.model_files import model_folder
from train.plan.settings.evaluate import EvaluateConfig
from train.recipes.evaluate.requests import BLOCK, Requests
from train.recipes.generate.write_answers import asked_model

MIXED = {"bf16": "bfloat16", "fp16": "float16", "fp32": None}
"""A run's precision, as the harness calls it."""
Answers = dict[str, list[list[Any]]]
"""Kind of request → of each document what the model answered, in the harness's order."""


class Stopped(Exception):
    """The piece is to end."""


class InBlocks(HFLM):  # type: ignore[misc]
    """Answers that depend on nothing but the block that a request is in."""

    def __init__(self, model: Any, tokenizer: Any, *, rows: int, precision: str, seed: int) -> None:
        """`rows`: requests that are computed at a time."""
        super().__init__(
            pretrained=model,
            tokenizer=tokenizer,
            batch_size=rows,
            softmax_dtype="float32",
            mixed_precision_dtype=MIXED[precision],
        )
        self.seed = seed
        self.is_stopped = threading.Event()

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = True) -> list[tuple[float, bool]]:
        return self.in_blocks(super().loglikelihood, requests)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = True) -> list[float]:
        return self.in_blocks(super().loglikelihood_rolling, requests)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = True) -> list[str]:
        return self.in_blocks(super().generate_until, requests)

    def in_blocks(self, answer: Callable[..., list[Any]], requests: Sequence[Instance]) -> list[Any]:
        answers: list[Any] = []
        for (task, block), some in itertools.groupby(requests, lambda one: (one.task_name, one.doc_id // BLOCK)):
            if self.is_stopped.is_set():
                raise Stopped
            torch.manual_seed(zlib.crc32(f"{self.seed} {task} {block}".encode()))  # for tasks that draw what is written
            answers += self.fewer_where_memory_ends(answer, list(some))
        return answers

    def fewer_where_memory_ends(self, answer: Callable[..., list[Any]], some: list[Instance]) -> list[Any]:
        while True:
            try:
                return answer(some, disable_tqdm=True)
            except torch.OutOfMemoryError:
                if self.batch_size_per_gpu == 1:
                    raise
                self.batch_size_per_gpu //= 2
                torch.cuda.empty_cache()


def answers_to(model: InBlocks, requests: Requests, task: str, documents: Iterable[int], side: str) -> Answers:
    """What the model says to all that is asked of some documents, which are whole blocks."""
    numbers = [number for number in documents if number in requests[task]]
    asked = [(number, one) for number in numbers for one in requests[task][number] for _ in range(one.repeats or 1)]
    by_kind: dict[str, dict[int, list[Any]]] = {}
    with without_adapter(model.model) if side == "base" else nullcontext():
        for kind in dict.fromkeys(one.request_type for _, one in asked):
            of_kind = [(number, one) for number, one in asked if one.request_type == kind]
            answers = getattr(model, kind)([one for _, one in of_kind])
            for (number, _), answer in zip(of_kind, answers, strict=True):
                by_kind.setdefault(kind, {}).setdefault(number, []).append(answer)
    return {kind: [by_number.get(number, []) for number in numbers] for kind, by_number in by_kind.items()}


def without_adapter(model: Any) -> AbstractContextManager[Any]:
    """A base that has none is it already."""
    base: AbstractContextManager[Any] = model.disable_adapter() if hasattr(model, "disable_adapter") else nullcontext()
    return base


def load(config: EvaluateConfig, device: str, precision: str) -> InBlocks:
    folder = model_folder(config.model)
    spec = asked_model(config, folder, device, precision, config.max_seq_length)
    model, tokenizer = backends.get("hf").build(spec), AutoTokenizer.from_pretrained(folder)
    return InBlocks(model, tokenizer, rows=config.requests_at_once, precision=precision, seed=config.seed)
