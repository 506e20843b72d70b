"""Many answers: a piece is some of the prompts, and what comes of it their answers.

An answer follows from the seed and its number alone (models/sample_tokens.py): whoever makes it, and whatever is made
beside it, it is the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

from train.files import whole_folder
from train.plan.settings.read_settings import GenerateConfig
from train.pool.piece_thread import Desk
from train.pool.pieces import Done, Known, Piece
from train.recipes import prepared
from train.recipes.generate.write_answers import Answers
from train.recipes.grpo.rows import PromptRows, open_prompts

FILE = "answers.jsonl"


class Generate:
    def __init__(self, config: GenerateConfig) -> None:
        self.config = config
        self.answers: Answers | None = None

    @cached_property
    def rows(self) -> PromptRows:
        folder = prepared(self.config, lambda _: None)
        return open_prompts(folder, "train", self.config.max_new_tokens)

    @property
    def data(self) -> str:
        return self.rows.hash

    @cached_property
    def count(self) -> int:
        return len(self.rows) * self.config.answers

    @property
    def total(self) -> int:
        return -(-self.count // self.config.piece)

    def load(self, desk: Desk) -> None:
        desk.doing("loading the model")
        self.answers = Answers(self.config, self.rows, desk.device, desk.precision)

    def next(self, known: Known) -> Piece | None:
        number = next((number for number in range(self.total) if not known.has(number)), None)
        if number is None:
            return None
        first = number * self.config.piece
        return Piece(number, {"first": first, "end": min(self.count, first + self.config.piece)})

    def is_over(self, known: Known) -> bool:
        return len(known.done) == self.total

    def work(self, piece: Piece, desk: Desk) -> dict[str, Any]:
        assert self.answers
        numbers = range(piece.what["first"], piece.what["end"])
        return {"answers": self.answers.make(numbers, desk.is_stopped)}

    def words(self, done: Done) -> str:
        answers = done.result["answers"]
        tokens = sum(one["tokens"] for one in answers)
        return f"{len(answers)} answers, {tokens / max(done.seconds, 1e-3):.0f} tokens/s"

    def finish(self, known: Known) -> Path:
        folder = self.config.result_folder / self.config.RESULT
        with whole_folder(folder) as draft, (draft / FILE).open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(line, ensure_ascii=False) + "\n" for line in self.lines(known))
        return folder

    def lines(self, known: Known) -> Iterator[dict[str, Any]]:
        """In the order of the prompts, with all that stood beside each."""
        for number in range(self.total):
            piece = known.done[number]
            numbers = range(piece.piece.what["first"], piece.piece.what["end"])
            for at, answer in zip(numbers, piece.result["answers"], strict=True):
                record = self.rows.record(at // self.config.answers)
                line = {"prompt": record["prompt"], "answer": answer["text"], "cut": answer["cut"]}
                columns = {f"data_{name}" if name in line else name: value for name, value in record["columns"].items()}
                yield columns | line

    def close(self) -> None:
        pass


made = Generate
