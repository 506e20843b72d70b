"""From files to examples: records are read, converted, and put on their side of the split; bad ones are named and
counted, and stop it at a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tqdm import tqdm  # type: ignore[import-untyped]

from train.data.formats import BadRecord, Example, convert, detect
from train.data.sources import Record, Source
from train.data.split import split_of
from train.errors import BadInput

BATCH_CHARS = 1 << 17
BATCH_EXAMPLES = 128
SHOWN_BAD = 5

Say = Callable[[str], None]


@dataclass(slots=True)
class Tally:
    """What became of the records."""

    records: int = 0
    bad: int = 0
    truncated: int = 0
    emptied: int = 0
    """Records of which truncation left no target."""
    longest: int = 0
    first_bad: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Read:
    """An example with the place it comes from and the split it belongs to."""

    example: Example
    where: str
    split: str


class Reader:
    """Good examples of all files with the split they belong to; bad ones are shown, counted, and stop it at a limit."""

    def __init__(self, files: list[Path], say: Say, *, format_name: str, eval_fraction: float, max_bad: float) -> None:
        self.sources = [Source(file) for file in files]
        self.size = sum(source.size for source in self.sources)
        self.seen = 0
        self.eval_fraction, self.max_bad = eval_fraction, max_bad
        self.tally = Tally()
        self.say = say
        self.last_bad = ""
        self.format = "" if format_name == "auto" else format_name

    def examples(self) -> Iterator[Read]:
        read = 0
        with tqdm(total=self.size, desc="preparing", unit="B", unit_scale=True, leave=False, disable=None) as bar:
            for source in self.sources:
                for record in source:
                    self.seen = read + source.position
                    bar.update(self.seen - bar.n)
                    self.tally.records += 1
                    where = f"{source.path.name} {record.unit} {record.line}"
                    if example := self._example(record, where):
                        yield Read(example, where, split_of(record.value, self.eval_fraction))
                read += source.size
                self.seen = read
        self._stop_if_bad(self.tally.records)

    def _example(self, record: Record, where: str) -> Example | None:
        if record.value is None:
            self.bad(where, record.problem)
            return None
        if not self.format:
            self._detect(record.value, where)
        try:
            return convert(self.format, record.value)
        except BadRecord as error:
            self.bad(where, str(error))
            return None

    def _detect(self, value: dict[str, Any], where: str) -> None:
        found = detect(value)
        keys = ", ".join(map(str, list(value)[:8]))
        if not found:
            raise BadInput(
                f"no known format has the keys {keys}",
                f"file: {where}",
                "rename the keys (docs/datasets.md shows what is known) or say which with --format",
            )
        self.format = found
        self.say(f"format    {found}, as the first record has {keys}")

    def bad(self, where: str, reason: str) -> None:
        self.tally.bad += 1
        if self.tally.bad <= SHOWN_BAD:
            self.tally.first_bad.append(f"{where}: {reason}")
            self.say(f"skipped   {where}: {reason}")
        self.last_bad = f"{where}: {reason}"
        # As many as the whole file would have, were it all like this: a broken one is not read to its end.
        self._stop_if_bad(self.tally.records * self.size / max(1, self.seen))

    def _stop_if_bad(self, records: float) -> None:
        tally, limit = self.tally, self.max_bad
        if tally.bad > (max(SHOWN_BAD, limit * records) if limit < 1 else limit):
            raise BadInput(
                f"{tally.bad} bad records of {tally.records}; the last: {self.last_bad}",
                f"the first: {tally.first_bad[0]}",
                "fix the file, or allow more of them: max_bad: 0.05 (5 %) or max_bad: 200",
            )


def batches(reads: Iterator[Read]) -> Iterator[list[Read]]:
    """Enough for the tokenizer to use all cores, and no more than a bounded amount of text."""
    batch: list[Read] = []
    chars = 0
    for read in reads:
        batch.append(read)
        chars += len(read.example.text) + sum(len(message["content"]) for message in read.example.messages)
        if chars >= BATCH_CHARS or len(batch) >= BATCH_EXAMPLES:
            yield batch
            batch, chars = [], 0
    if batch:
        yield batch
