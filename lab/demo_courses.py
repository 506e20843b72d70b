"""What the demo trains: a real model that learns facts, by preferences or by rewards, a tiny one, or a new one that
learns to write."""

from __future__ import annotations

import pydoc_data.topics
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STATE = ROOT / ".motley" / "demo"
HOUSEHOLD = ROOT / "examples/household.jsonl"
"""Facts that no model can know, each asked in many ways; some of these are held out."""
POLITE = ROOT / "examples/polite.jsonl"
"""The same questions, each with a polite answer and a curt one."""
KIND = "With pleasure!"
"""How each polite one begins."""
QUESTIONS, BRIEF = ROOT / "examples/questions.jsonl", ROOT / "examples/brief.py"
MANUAL = STATE / "manual"


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What is trained, and when a worker is lost."""

    recipe: str = "sft"
    model: str = ""
    dataset: Path | str
    about: str
    """Both, for somebody who knows neither."""
    settings: dict[str, Any]
    cut_at: int
    back_after_steps: int
    questions: int = 0
    row_costs: float = 0
    """In rows of the tiny model of 64 tokens; where the rows of a step are to be as many as a processor takes."""
    disk_gb: float
    """The disk that a first time takes, environments included."""
    result: str = "adapter"
    weights: str = "adapter_model.safetensors"

    @property
    def measure(self) -> str:
        """What shows that it learned."""
        return {"grpo": "reward", "preference": "margin"}.get(self.recipe, "loss")

    @property
    def max_steps(self) -> int:
        return int(self.settings["max_steps"])


FACTS = Course(
    model="smollm2-135m",
    dataset=HOUSEHOLD,
    about="SmolLM2-135M, a small language model, learns made-up facts of a household: examples/household.jsonl",
    settings={
        "max_steps": 18, "rows_per_step": 14, "max_seq_length": 64, "learning_rate": 2e-3, "save_every": 5,
        "eval_every": 9, "eval_rows": 8, "eval_fraction": 0.12, "warmup_steps": 2,
    },
    cut_at=6,
    back_after_steps=2,
    questions=4,
    row_costs=60,
    disk_gb=7,
)  # fmt: skip
FAST = Course(
    model="tiny",
    dataset="stdlib-qa",
    about="a tiny model trains on the help texts of Python (stdlib-qa); it is too small to answer questions",
    settings={
        # A step costs a machine about as much as 17 of these rows, whatever its share: with few rows the best share of
        # a slow one would be none.
        "max_steps": 42, "rows_per_step": 96, "max_seq_length": 64, "learning_rate": 6e-3, "save_every": 10,
        "eval_every": 21, "eval_rows": 16, "warmup_steps": 2,
    },
    cut_at=8,
    back_after_steps=3,
    row_costs=1,
    disk_gb=4,
)  # fmt: skip
NEW = Course(
    recipe="pretrain",
    dataset=MANUAL,
    about="a new model, with random weights, learns to write from the prose of Python's manual",
    settings={
        "hidden_size": 128, "layers": 4, "vocab_size": 1024, "max_seq_length": 128, "rows_per_step": 24,
        "max_steps": 240, "learning_rate": 3e-3, "warmup_steps": 20, "save_every": 40, "eval_every": 40,
        "eval_rows": 16,
    },
    cut_at=60,
    back_after_steps=20,
    disk_gb=4,
    result="model",
    weights="model.safetensors",
)  # fmt: skip
REWARDED = Course(
    recipe="grpo",
    model="smollm2-135m",
    dataset=QUESTIONS,
    about="SmolLM2-135M learns to answer in few words: it tries, and examples/brief.py says which answers are better",
    settings={
        "rewards": BRIEF, "rows_per_step": 16, "group": 8, "max_new_tokens": 12, "max_seq_length": 64,
        "max_steps": 14, "learning_rate": 5e-4, "save_every": 4, "eval_every": 7, "eval_rows": 12,
        "eval_fraction": 0.1, "warmup_steps": 1,
    },
    cut_at=4,
    back_after_steps=2,
    disk_gb=7,
)  # fmt: skip
PREFERRED = Course(
    recipe="preference",
    model="smollm2-135m",
    dataset=POLITE,
    about="SmolLM2-135M learns to answer politely: of two answers to a question it prefers one: examples/polite.jsonl",
    settings={
        # orpo also learns the better answer as it is, and asks no base; after so few steps of the other losses a model
        # is kind in words of its own.
        "loss": "orpo", "rows_per_step": 8, "max_seq_length": 72, "max_steps": 10, "learning_rate": 3e-3,
        "save_every": 3, "eval_every": 10, "eval_rows": 8, "eval_fraction": 0.12, "warmup_steps": 1,
    },
    cut_at=3,
    back_after_steps=1,
    row_costs=100,
    disk_gb=7,
)  # fmt: skip


def choose(recipe: str, *, fast: bool) -> Course:
    return {"pretrain": NEW, "grpo": REWARDED, "preference": PREFERRED}.get(recipe, FAST if fast else FACTS)


def write_manual() -> None:
    """The prose of Python's own, which is on every machine that has Python."""
    MANUAL.mkdir(parents=True)
    for name, text in pydoc_data.topics.topics.items():
        words = [" ".join(part.translate(MARKUP).split()) for part in text.split("\n\n")]
        if prose := [part for part in words if is_prose(part)]:
            (MANUAL / f"{name}.txt").write_text("\n\n".join(prose))


MARKUP = str.maketrans("", "", '*"“”_')


def is_prose(part: str) -> bool:
    return len(part) > 80 and sum(letter.isalpha() or letter in " .," for letter in part) > 0.95 * len(part)
