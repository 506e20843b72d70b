"""Makes answers with the model that a run is given: a base, or one with its adapter."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from train.data.to_tokens import load_chat
from train.models import backends
from train.models.backends import ModelSpec, to_tensors
from train.models.model_files import model_folder
from train.models.sample_tokens import Draw, answers
from train.plan.model.catalogue import resolve_model
from train.plan.settings.evaluate import EvaluateConfig
from train.plan.settings.read_settings import GenerateConfig
from train.recipes.grpo.rows import PromptRows


def asked_model(
    config: GenerateConfig | EvaluateConfig, folder: str, device: str, precision: str, row_length: int
) -> ModelSpec:
    """The base, with the adapter where there is one."""
    return ModelSpec(
        folder=folder,
        method="lora" if config.adapter else "base",
        device=device,
        precision=precision,
        load_in=config.load_in if config.load_in != "auto" else "16bit",
        adapter=Path(config.adapter) if config.adapter else None,
        max_seq_length=row_length,
    )


class Answers:
    def __init__(self, config: GenerateConfig, rows: PromptRows, device: str, precision: str) -> None:
        self.config, self.rows, self.device, self.at_once = config, rows, device, config.answers_at_once
        folder, backend = model_folder(config.model), backends.get("hf")
        spec = asked_model(config, folder, device, precision, rows.row_length)
        self.module = backends.loss_module(backend, backend.build(spec), precision, device)
        self.module.model.eval()
        self.tokenizer = load_chat(resolve_model(folder)).tokenizer

    def make(self, numbers: Sequence[int], is_stopped: threading.Event) -> list[dict[str, Any]]:
        """The text of each, how many tokens it has, and whether it was cut before its end. `numbers`: of the answers
        among all; fewer at a time after an out-of-memory."""
        found: list[dict[str, Any]] = []
        while len(found) < len(numbers) and not is_stopped.is_set():
            some = numbers[len(found) : len(found) + self.at_once]
            try:
                found += self._make(some)
            except torch.OutOfMemoryError:
                if self.at_once == 1:
                    raise
                self.at_once //= 2
                torch.cuda.empty_cache()
        return found

    def _make(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        config = self.config
        prompts = [number // config.answers for number in numbers]
        asked = to_tensors(self.rows.prompts(prompts, [[] for _ in prompts]), self.device)
        draw = Draw(
            seed=config.seed,
            rollout=0 if config.temperature else None,
            temperature=config.temperature or 1.0,
            top_p=config.top_p,
        )
        with self.module.autocast():
            made = answers(
                self.module.model, asked, list(numbers), draw, end_ids=self.rows.end_ids, most=config.max_new_tokens
            )
        return [self._made(one.tokens) for one in made]

    def _made(self, tokens: list[int]) -> dict[str, Any]:
        ended = bool(tokens) and tokens[-1] in self.rows.end_ids
        text = self.tokenizer.decode(tokens[:-1] if ended else tokens, skip_special_tokens=True)
        return {"text": text, "tokens": len(tokens), "cut": not ended}
