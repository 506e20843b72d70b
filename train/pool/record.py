"""pieces.jsonl beside a run's checkpoints: what is done, a line each, on every machine. Lines are only added; of two
for one piece that of the later generation counts, and a line that the power took half of is dropped."""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from train.errors import OtherData
from train.plan.settings.read_settings import RunConfig
from train.pool import PoolRecipe
from train.pool.pieces import Done
from train.runlog import paths
from train.runlog.events import append_whole


class Disk:
    def read(self, file: Path) -> str:
        """Whole lines; nothing where there is no file."""
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        return text[: text.rfind("\n") + 1]

    def append(self, file: Path, line: str) -> None:
        """All of it, so that it survives a power cut; or nothing, with an OSError."""
        append_whole(file, line, lasts=True)


class Record:
    def __init__(self, file: Path, disk: Disk, *, writes: bool = True) -> None:
        """`writes`: one process of a machine does."""
        self.file, self.disk, self.writes = file, disk, writes
        self.done: dict[int, Done] = {}
        for line in disk.read(file).split("\n")[:-1]:  # splitlines would also cut at a U+2028 in an answer
            with suppress(ValueError, KeyError, TypeError):  # a disk has changed it: its piece is done again
                self._take(Done.of(json.loads(line)))

    def add(self, done: Done) -> bool:
        """Whether it is new here. What the disk has not taken is not there."""
        if not self._is_new(done):
            return False
        if self.writes:
            self.disk.append(self.file, json.dumps(done.facts(), ensure_ascii=False) + "\n")
        self._take(done)
        return True

    def _is_new(self, done: Done) -> bool:
        before = self.done.get(done.piece.number)
        return before is None or before.generation < done.generation

    def _take(self, done: Done) -> None:
        if self._is_new(done):
            self.done[done.piece.number] = done

    @property
    def generations(self) -> dict[int, int]:
        return {number: done.generation for number, done in self.done.items()}


def require_same_data(recipe: PoolRecipe, config: RunConfig, done: Iterable[Done]) -> None:
    """What comes of a piece goes with the rows that have its number now: they must be those of then."""
    data = getattr(recipe, "data", "")
    if data and any(each.data not in ("", data) for each in done):
        raise OtherData(config.run, f"done so far: {config.checkpoint_folder() / paths.PIECES}")
