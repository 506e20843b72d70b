"""The settings of making many answers (recipe=generate): prompts in, answers out. Nothing is trained."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from train.errors import BadInput
from train.plan.settings.every_run import at_least, flags, option
from train.plan.settings.only_asks import OnlyAsksConfig
from train.plan.settings.sft import COLDEST, data_words, require_asking, require_room_for_prompt
from train.runlog import paths


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(OnlyAsksConfig):
    PREPARES: ClassVar[str] = "train.recipes.grpo.rows"
    RESULT: ClassVar[str] = paths.GIVEN_ANSWERS
    TOGETHER: ClassVar[frozenset[str]] = frozenset({"max_seq_length", "max_new_tokens", "answers", "temperature"})

    recipe: str = option("generate", "math", "answer many prompts", ("generate",))
    max_new_tokens: int = option(256, "math", "tokens of an answer, at most")
    answers: int = option(1, "math", "answers to each prompt; more than one need a temperature")
    temperature: float = option(0.0, "math", "0: the likeliest token; else what scores are divided by before a draw")
    top_p: float = option(1.0, "math", "draw from the likeliest tokens that have this probability together")
    piece: int = option(16, "math", "answers that a machine takes at a time from the list of all")
    answers_at_once: int = option(16, "node", "answers that a machine makes side by side, at most; memory counts them")

    max_seq_length: int = option(1024, "agree", "tokens of a prompt and its answer together, at most")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_asking(self)
        for name in ("max_new_tokens", "answers", "piece", "answers_at_once"):
            at_least(self, name, 1)
        if self.temperature:
            at_least(self, "temperature", COLDEST)
        if not 0 < self.top_p <= 1:
            raise BadInput(f"top_p: {self.top_p} is not above 0 and at most 1")
        if self.answers > 1 and not self.temperature:
            what = f"answers: {self.answers} answers to a prompt would be the same, as each token is the likeliest"
            raise BadInput(what, fix="temperature=1, or leave answers out")
        require_room_for_prompt(self.max_seq_length, self.max_new_tokens)

    @property
    def prompt_tokens(self) -> int:
        """Tokens of a prompt, at most."""
        return self.max_seq_length - self.max_new_tokens

    @property
    def rewards(self) -> str:
        """What scores an answer: nothing."""
        return ""

    @property
    def rewards_file(self) -> Path | None:
        return None

    @property
    def subject(self) -> str:
        return f"{self.model} · answers"

    @property
    def about(self) -> str:
        return f"answers of up to {self.max_new_tokens} tokens"

    @property
    def row_words(self) -> str:
        return f"pieces of {self.piece} answers"

    @property
    def step_words(self) -> tuple[int, str]:
        return self.piece, "answers"

    def prepare_words(self, model_folder: str, file: str = "") -> list[str]:
        words = flags(self, "recipe", "max_seq_length", "max_new_tokens", "max_bad")
        return [f"--model={model_folder}", *words, *data_words(self)]
