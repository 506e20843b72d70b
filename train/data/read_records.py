"""Turns files into examples: records are read, converted, and put on their side of the split; bad ones are named and
counted, and stop it at a limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from tqdm import tqdm  # type: ignore[import-untyped]

from train.data.convert_record import BadRecord, Example, JsonObject, convert, detect
from train.data.in_threads import in_order
from train.data.parse_files import NOT_UTF8, Source
from train.data.question import USED
from train.errors import BadInput
from train.plan.model.catalogue import Taken

BATCH_BYTES = 1 << 17
BATCH_RECORDS = 128
SHOWN_BAD = 5
MORE_BAD = "allow more of them: --set max_bad=0.05 (5 %) or --set max_bad=200"

Say = Callable[[str], None]
Result = TypeVar("Result")


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

    def as_records(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Found:
    """A record with the place it comes from."""

    value: JsonObject | None
    problem: str
    where: str
    seen: int
    """Bytes of all files up to its end."""

    def read_by(self, read: Callable[[JsonObject], Result]) -> Result | BadRecord:
        """What this makes of it, or why it cannot be used."""
        if self.value is None:
            return BadRecord(self.problem)
        try:
            return read(self.value)
        except BadRecord as error:
            return error

    def example(self, data_format: str) -> Example | BadRecord:
        return self.read_by(partial(convert, data_format))


Asked = tuple[str, list[Found]]
"""The format's name, and some records of it."""


class Reader:
    """The records of all files, and what becomes of them; bad ones are shown, counted, and stop it at a limit."""

    def __init__(
        self, files: list[Path], say: Say, *, format_name: str, max_bad: float, taken: Taken | None = None
    ) -> None:
        self.taken = taken or Taken()
        self.sources = [Source(file) for file in files]
        self.size = sum(source.size for source in self.sources)
        self.passed_bytes = 0
        """Bytes before the first record that is taken."""
        self.seen = 0
        self.max_bad = max_bad
        self.tally = Tally()
        self.say = say
        self.format = "" if format_name == "auto" else format_name
        self.columns_found = False
        """Whether a record has had the columns that are named: one that lacks them later is a bad record."""

    def made(
        self, make: Callable[[Asked], list[Result | BadRecord]], threads: int = 1
    ) -> Iterator[tuple[Found, Result]]:
        """Each good record with what `make` makes of it, in the records' order; all is counted in that order."""
        asked = ((self.format, batch) for batch in batches(self._records()))
        for (_, batch), results in in_order(make, asked, threads):
            for found, result in zip(batch, results, strict=True):
                self.tally.records += 1
                self.seen = found.seen
                if isinstance(result, BadRecord):
                    self.skip(found, result)
                else:
                    yield found, result
        self._stop_if_bad(self.tally.records)

    def _records(self) -> Iterator[Found]:
        read, number, (first, end) = 0, -1, bounds(self.taken, self.sources)
        with tqdm(total=self.size, desc="preparing", unit="B", unit_scale=True, leave=False, disable=None) as bar:
            for source in self.sources:
                for record in source:
                    seen = read + source.position
                    bar.update(seen - bar.n)
                    number += 1
                    if number >= end:
                        return
                    if number < first:
                        self.passed_bytes = seen
                        continue
                    where = f"{source.path.name} {record.unit} {record.line}"
                    position = f"file: {source.path}, {record.unit} {record.line}"
                    value, problem = record.value, record.problem
                    if value and (lacking := lacks(value, self.taken.columns)):
                        problem = f"there is no column '{lacking}'"
                        if not self.columns_found:
                            raise BadInput(f"dataset: {problem}", position, f"there are: {shown_keys(value)}")
                        value = None
                    elif value:
                        value, self.columns_found = renamed(value, self.taken.columns), True
                    if not self.format and value is not None and value.get("conversations") == []:
                        value, problem = None, "its list of turns is empty"  # nor says what the others are
                    if not self.format and value is not None:
                        self._detect(value, position)
                    yield Found(value, problem, where, seen)
                read += source.size

    def _detect(self, value: JsonObject, where: str) -> None:
        named = {ours: value[ours] for ours in self.taken.columns}  # what else is there says less
        format_name = detect(named) or detect(value)
        keys = shown_keys(value)
        if not format_name:
            asked, answered, *_ = (*value, "KEY", "KEY")
            columns = f"--dataset '{self.sources[0].path.name}?prompt={asked}&completion={answered}'"
            fix = f"say which is which, such as {columns}, or rename the keys (docs/datasets.md shows what is known)"
            raise BadInput(f"no known format has the keys {keys}", where, fix)
        self.format = format_name
        unread = shown_keys({key: None for key in value if key not in USED[format_name]})
        self.say(f"format    {format_name}, as the first record has {keys}{unread and f'; not read: {unread}'}")

    def skip(self, found: Found, problem: BadRecord) -> None:
        """A record that cannot be used."""
        self.tally.bad += 1
        if self.tally.bad <= SHOWN_BAD:
            self.tally.first_bad.append(f"{found.where}: {problem}")
            self.say(f"skipped   {found.where}: {problem}")
        # As many as the whole file would have, were it all like this: a broken one is not read to its end.
        read, whole = (max(1, size - self.passed_bytes) for size in (self.seen, self.size))
        self._stop_if_bad(self.tally.records * whole / read)

    def require_some(self, *, held_out: int) -> None:
        """Raises BadInput where nothing is left to train on."""
        where = f"file: {self.sources[0].path}"
        problem = f": {self.tally.first_bad[0]}" if self.tally.first_bad else ""
        if held_out:
            fix = "hold out fewer: --set eval_fraction=0.02, or 0 for none"
            raise BadInput(f"all usable records are held out for evaluation{problem}", where, fix)
        fix = self._fix() or "docs/datasets.md shows what is known"
        raise BadInput(f"the data set has no usable record{problem}", where, fix)

    def _fix(self) -> str:
        """What makes a file of the first bad record's kind readable; empty where its records must be looked at."""
        name, first = self.sources[0].path.name, "".join(self.tally.first_bad[:1])
        if first.endswith(NOT_UTF8):
            return f"convert it: iconv -f windows-1252 -t utf-8 '{name}' > 'utf8-{name}'"
        whole = first.endswith("not an object but list") and name.endswith(".jsonl")
        return f"a file of one array is read as .json: call it {name.removesuffix('l')}" if whole else ""

    def _stop_if_bad(self, records: float) -> None:
        tally, limit = self.tally, self.max_bad
        if tally.bad > (max(SHOWN_BAD, limit * records) if limit < 1 else limit):
            raise BadInput(
                f"{tally.bad} bad records of {tally.records}; the first: {tally.first_bad[0]}",
                f"file: {self.sources[0].path}" if len(self.sources) == 1 else "",
                f"{self._fix() or 'fix it there'}, or {MORE_BAD}",
            )


def bounds(taken: Taken, sources: Sequence[Source]) -> tuple[int, float]:
    """The number of the first record that is taken, and of the one before which it ends. For a part of all they are
    counted first."""
    if not (taken.first or taken.end):
        return 0, math.inf
    parts = "%" in taken.first + taken.end
    total = sum(1 for source in sources for _ in Source(source.path)) if parts else 0

    def number(text: str) -> int:
        return round(total * int(text[:-1]) / 100) if text.endswith("%") else int(text)

    first, end = number(taken.first or "0"), number(taken.end) if taken.end else math.inf
    if first >= end:
        what = f"dataset: of [{taken.first}:{taken.end}] no record is left"
        raise BadInput(what, f"file: {sources[0].path}", "write where it begins, then where it ends")
    return first, end


def shown_keys(record: JsonObject) -> str:
    return ", ".join(map(str, list(record)[:8]))


def lacks(record: JsonObject, columns: Mapping[str, str]) -> str:
    """The first of the named columns that the record does not have."""
    return next((theirs for theirs in columns.values() if theirs not in record), "")


def renamed(record: JsonObject, columns: Mapping[str, str]) -> JsonObject:
    """The record with the keys that Motley knows in place of its own."""
    others = {key: value for key, value in record.items() if key not in columns and key not in columns.values()}
    return others | {ours: record[theirs] for ours, theirs in columns.items()} if columns else record


def require_bytes(files: Sequence[Path]) -> None:
    if not any(file.stat().st_size for file in files):
        raise BadInput("the data set is empty", f"file: {files[0]}", "docs/datasets.md shows what it may look like")


def examples(asked: Asked) -> list[Example | BadRecord]:
    data_format, batch = asked
    return [found.example(data_format) for found in batch]


def batches(records: Iterator[Found]) -> Iterator[list[Found]]:
    """Enough to be worth handing over, and no more than a bounded amount of text."""
    batch: list[Found] = []
    before = 0
    for found in records:
        batch.append(found)
        if found.seen - before >= BATCH_BYTES or len(batch) >= BATCH_RECORDS:
            yield batch
            batch, before = [], found.seen
    if batch:
        yield batch
