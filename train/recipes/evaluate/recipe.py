"""Tasks before and after: a piece is some documents of a task, asked of the base or of the adapter.

What the base answers does not depend on the run, so its pieces are others than the adapter's. Scores and their
comparison are made of all answers at the end, the same on every machine (score.py).
"""

from __future__ import annotations

import json
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from train.files import file_hash, whole_folder
from train.plan.launch import extra_packages
from train.plan.settings.evaluate import EvaluateConfig
from train.pool.piece_thread import Desk
from train.pool.pieces import Done, Known, Piece
from train.recipes import prepared
from train.recipes.evaluate import prepare
from train.runlog.scores import FILE, table

if TYPE_CHECKING:
    import torch  # noqa: F401

    from train.recipes.evaluate.load_tasks import Loaded
    from train.recipes.evaluate.model import InBlocks
    from train.recipes.evaluate.requests import Requests


class Evaluate:
    def __init__(self, config: EvaluateConfig) -> None:
        extra_packages.use(config)
        self.config = config
        self.model: InBlocks | None = None
        self.lock = threading.Lock()
        """One thread loads the tasks: a machine may be at its end before it has loaded anything."""
        self.asked: tuple[Loaded, Requests] | None = None

    @cached_property
    def folder(self) -> Path:
        return prepared(self.config, lambda _: None)

    @cached_property
    def all(self) -> list[dict[str, Any]]:
        """What each piece is. Their cost falls from the first to the last."""
        parts = prepare.read(self.folder)["parts"]
        return [{"side": side, **part} for part in parts for side in self.config.sides]

    @cached_property
    def data(self) -> str:
        return file_hash(self.folder / prepare.INDEX)

    @property
    def total(self) -> int:
        return len(self.all)

    def load(self, desk: Desk) -> None:
        desk.doing("loading the tasks")
        self.tasks()
        desk.doing("loading the model")
        from train.recipes.evaluate.model import load

        self.model = load(self.config, desk.device, desk.precision)
        self.model.is_stopped = desk.is_stopped

    def tasks(self) -> tuple[Loaded, Requests]:
        from train.recipes.evaluate import load_tasks, requests

        with self.lock:
            if self.asked is None:
                loaded = load_tasks.kept(self.folder)
                config = self.config
                asked = requests.build(loaded, limit=config.documents, shots=config.shots, seed=config.seed)
                self.asked = loaded, asked
        return self.asked

    def next(self, known: Known) -> Piece | None:
        number = next((number for number in range(self.total) if not known.has(number)), None)
        return None if number is None else Piece(number, self.all[number])

    def is_over(self, known: Known) -> bool:
        return len(known.done) == self.total

    def work(self, piece: Piece, desk: Desk) -> dict[str, Any]:
        from train.recipes.evaluate.model import Stopped, answers_to

        assert self.model
        what = piece.what
        documents = range(what["first"], what["end"])
        try:
            return {"answers": answers_to(self.model, self.tasks()[1], what["task"], documents, what["side"])}
        except Stopped:
            return {}

    def words(self, done: Done) -> str:
        what = done.piece.what
        count = what["end"] - what["first"]
        return f"{what['task']}, {what['side']}: {count} documents, {count / max(done.seconds, 1e-3):.3g} a second"

    def finish(self, known: Known) -> Path:
        from train.recipes.evaluate import score

        loaded, _ = self.tasks()
        answers: dict[str, dict[str, list[Any]]] = {side: {} for side in self.config.sides}
        for number, what in enumerate(self.all):
            part = range(what["first"], what["end"]), known.done[number].result["answers"]
            answers[what["side"]].setdefault(what["task"], []).append(part)
        results = {side: score.scores(loaded, answers[side], limit=self.config.documents) for side in answers}
        facts: dict[str, Any] = {
            "run": self.config.run,
            "of_run": self.config.of_run,
            "harness": prepare.version(),
            "rows": score.compared(loaded, results),
            "documents": self.config.documents,
            "seed": self.config.seed,
        }
        folder = self.config.result_folder / self.config.RESULT
        with whole_folder(folder) as draft:
            (draft / FILE).write_text(json.dumps(facts, indent=1) + "\n")
            (draft / "tasks.txt").write_text("\n".join(table(facts)) + "\n")
        return folder

    def close(self) -> None:
        if self.model:
            self.model.is_stopped.set()


made = Evaluate
