"""Rows of preferences on disk: `python -m train prepare --recipe preference`.

    python -m train prepare --recipe preference --dataset polite.jsonl --model smollm2-135m --max-seq-length 256

A row is two sequences, each a prompt with an answer: the better and the worse one. Of single answers (loss=kto) it is
the answer behind its prompt, and behind the same prompt the answer of the record before, which has nothing to do with
it: how far the model is from its base is estimated on these. A split is that of rows.py, with two samples in each row
that are never packed, and beside it

    labels.bin  uint8  1 where the first answer is good, as of every pair

The rows of several data sets stand behind one another, each set's as it has them alone (mix_data_sets.py). The same
data, model and settings give the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from train.cache import build_once
from train.data.convert_record import BadRecord
from train.data.in_threads import threads_for
from train.data.index import Index, SplitIndex
from train.data.mix_data_sets import Parts, RowsPart
from train.data.packing import Sample
from train.data.pair_records import FORMAT_NAME, Preference, preference_of
from train.data.prepare import Questions, rows_folder
from train.data.read_records import Asked, Reader, Say
from train.data.rows import FORMAT, IGNORED, PackedRows, RowWriter, mapped, packed_rows, read_index
from train.data.run_data import OpenedData, find_data
from train.data.to_tokens import Chat, encode
from train.errors import BadInput
from train.files import file_hash
from train.plan.settings.read_settings import PreferenceConfig

KIND, LABELS, QUESTIONS = "pairs", "labels.bin", "questions.jsonl"
Columns: TypeAlias = "dict[str, NDArray[Any]]"


@dataclass(frozen=True)
class PairRows:
    """One split of preferences."""

    packed: PackedRows
    labels: NDArray[np.uint8]
    labels_hash: str

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def folder(self) -> Path:
        return self.packed.folder

    @property
    def parts(self) -> tuple[RowsPart, ...]:
        """Which rows are of which data set, where they are of several."""
        return self.packed.parts

    @cached_property
    def hash(self) -> str:
        return hashlib.sha256(f"{self.packed.hash} {self.labels_hash}".encode()).hexdigest()

    @property
    def row_length(self) -> int:
        """Tokens of the longest sequence; a row has two."""
        return self.packed.row_length

    @cached_property
    def targets(self) -> NDArray[np.int32]:
        """One for each row: a step's loss is the mean over its rows."""
        return np.ones(len(self.labels), dtype=np.int32)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of both sequences of each row."""
        found: NDArray[np.int64] = np.diff(self.packed.samples).reshape(-1, 2)
        return found

    def sequences(self, indices: list[int], which: int) -> list[tuple[NDArray[Any], NDArray[np.uint8]]]:
        """Tokens of the first or second sequence of each row, and 1 where they are of its answer."""
        starts = [int(self.packed.rows[index]) + which for index in indices]
        spans = [(int(self.packed.samples[at]), int(self.packed.samples[at + 1])) for at in starts]
        return [(self.packed.tokens[a:b], self.packed.trained[a:b]) for a, b in spans]

    def batch(self, indices: list[int], position: int = 0) -> Columns:
        """All first sequences, then all second ones."""
        return self.filled([*self.sequences(indices, 0), *self.sequences(indices, 1)])

    def filled(self, sequences: list[tuple[NDArray[Any], NDArray[np.uint8]]]) -> Columns:
        """Padded on the right, where no token sees it; the answers are what is to be predicted."""
        shape = (len(sequences), max((len(tokens) for tokens, _ in sequences), default=1))
        input_ids = np.full(shape, self.packed.pad_id, dtype=np.int64)
        labels = np.full(shape, IGNORED, dtype=np.int64)
        for row, (tokens, answer) in enumerate(sequences):
            input_ids[row, : len(tokens)] = tokens
            labels[row, : len(tokens)] = np.where(answer == 1, input_ids[row, : len(tokens)], IGNORED)
        places = np.broadcast_to(np.arange(shape[1], dtype=np.int64), shape).copy()
        return {"input_ids": input_ids, "labels": labels, "position_ids": places}

    def token_count(self, indices: list[int]) -> int:
        return int(self.lengths[indices].sum())

    def verify(self) -> None:
        self.packed.verify()
        if file_hash(self.folder / LABELS) != self.labels_hash:
            raise BadInput(
                "the prepared answers are damaged: their labels do not have the hash that index.json names",
                f"folder: {self.folder}",
                "remove that folder and prepare the data set again",
            )


def open_pairs(folder: Path, split: str, *, paired: bool) -> PairRows:
    index = read_index(folder)
    if index.get("kind") != KIND or index["paired"] != paired:
        what = "pairs of answers" if paired else "single answers with a label"
        words = "python -m train prepare --recipe preference --loss LOSS --dataset FILE --model MODEL"
        raise BadInput(f"these rows are no {what}", f"folder: {folder}", f"prepare such with: {words}")
    packed = packed_rows(folder, index, split)
    labels = mapped(folder / split / LABELS, "u1")
    if len(labels) != len(packed) or len(packed.samples) != 2 * len(packed) + 1:
        raise BadInput(
            f"the prepared answers are cut short: {len(labels)} of {len(packed)} rows have a label",
            f"folder: {folder / split}",
            "remove that folder and prepare the data set again",
        )
    return PairRows(packed, labels, index["splits"][split]["labels"])


def prepare(config: PreferenceConfig, say: Say, *, out: str | None = None, date: str = "") -> Path:
    """The folder of rows; made only if it is not there yet. `date` is what templates write as today's."""
    data = find_data(config, say)
    opened = data.opened(say, date)
    names = ("max_seq_length", "eval_fraction", "paired")
    made_from = opened.made_from({name: getattr(config, name) for name in names} | {"form": config.format})
    folder = rows_folder(data.dataset.name, made_from, out)
    known = folder.exists()
    readers = data.readers(say, FORMAT_NAME)
    build_once(folder, lambda draft: write(draft, config, opened, readers, made_from))
    index = read_index(folder)
    rows, held_out = (index["splits"][split]["rows"] for split in ("train", "eval"))
    say(f"{'pairs  ' if config.paired else 'answers'}   {rows}; {held_out} held out")
    say(f"folder    {folder}{' (was there already)' if known else ''}")
    return folder


def write(
    folder: Path, config: PreferenceConfig, opened: OpenedData, readers: list[Reader], made_from: Mapping[str, object]
) -> None:
    """The rows of one data set after another: each row is of one of them."""
    data, chat = opened.data.dataset, opened.chat
    writers = {
        split: Writer(folder / split, config.max_seq_length, chat.token_bytes, paired=config.paired)
        for split in ("train", "eval")
    }
    parts = Parts(data)
    with Questions(folder / QUESTIONS) as questions:
        for reader in readers:
            fill(writers, config, reader, chat, questions)
            rows = {split: writer.finish() for split, writer in writers.items()}
            if rows["train"] == parts.rows["train"] and data.each[len(parts.made)].weight:
                require_length(reader, config)
            parts.add(rows, reader)
    splits = {split: writer.close() for split, writer in writers.items()}
    head = Index(
        format=FORMAT,
        kind=KIND,
        paired=config.paired,
        row_length=config.max_seq_length,
        token_bytes=chat.token_bytes,
        pad_id=chat.pad_id,
        splits=splits,
    )
    index = opened.complete(head, parts, readers, made_from, FORMAT_NAME)
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def fill(
    writers: dict[str, Writer], config: PreferenceConfig, reader: Reader, chat: Chat, questions: Questions
) -> None:
    tally, most = reader.tally, config.max_seq_length
    for _, made in reader.made(partial(encoded, chat, config), threads_for(reader.size)):
        tally.longest = max(tally.longest, *(len(tokens) for tokens, _ in made.samples))
        tally.truncated += any(len(tokens) > most for tokens, _ in made.samples)
        samples = [(tokens[:most], own[:most]) for tokens, own in made.samples]
        if not all(any(own[1:]) for _, own in samples) or (config.paired and samples[0][0] == samples[1][0]):
            tally.emptied += 1
            continue
        split = made.preference.split(config.eval_fraction)
        if split == "eval" and questions.room and made.preference.good:
            questions.keep(made.preference.examples[0])
        writers[split].add(samples, made.preference.good)


def require_length(reader: Reader, config: PreferenceConfig) -> None:
    if reader.tally.emptied:
        raise BadInput(
            f"of {reader.tally.emptied} records, none has answers that differ within {config.max_seq_length} tokens",
            f"file: {reader.sources[0].path}",
            f"the longest has {reader.tally.longest} tokens: --set max_seq_length={reader.tally.longest}",
        )


@dataclass(frozen=True, slots=True)
class Encoded:
    preference: Preference
    samples: list[Sample]


def encoded(chat: Chat, config: PreferenceConfig, asked: Asked) -> list[Encoded | BadRecord]:
    """Tokens of each record's answers behind its prompt."""
    read = [preference_of(found, paired=config.paired, form=config.format) for found in asked[1]]
    samples: Iterator[Sample | BadRecord] = iter(
        encode(chat, [example for one in read if isinstance(one, Preference) for example in one.examples], True)
    )
    return [one if isinstance(one, BadRecord) else together(one, [next(samples) for _ in one.answers]) for one in read]


def together(preference: Preference, samples: list[Sample | BadRecord]) -> Encoded | BadRecord:
    if bad := next((sample for sample in samples if isinstance(sample, BadRecord)), None):
        return bad
    good = [sample for sample in samples if not isinstance(sample, BadRecord)]
    if len(good) > 1 and list(good[0][0]) == list(good[1][0]):
        return BadRecord("'chosen' and 'rejected' are the same answer: nothing is preferred")
    return Encoded(preference, good)


class Writer:
    """Appends rows to a split. Of single answers each gets the one before; the first, which has none yet, is written
    behind its data set, with the last."""

    def __init__(self, folder: Path, row_length: int, token_bytes: int, *, paired: bool) -> None:
        self.folder, self.length, self.paired = folder, row_length, paired
        self.rows = RowWriter(folder, row_length, token_bytes)
        self.labels = bytearray()
        self.first: tuple[Sample, bool] | None = None
        self.before: Sample | None = None

    def add(self, samples: list[Sample], good: bool) -> None:
        if self.paired:
            return self.write(samples, good)
        [own] = samples
        if self.before is None:
            self.first = own, good
        else:
            self.write([own, self.mismatched(own, self.before)], good)
        self.before = own

    def mismatched(self, own: Sample, other: Sample) -> Sample:
        """The prompt of one with the answer of another, which has one token of room at least."""
        prompt, answer = answer_at(own), answer_at(other)
        tokens = [*own[0][:prompt], *other[0][answer:]][: self.length]
        return tokens, bytearray([*own[1][:prompt], *other[1][answer:]][: self.length])

    def write(self, samples: list[Sample], good: bool) -> None:
        self.rows.add(samples)
        self.labels.append(good)

    def finish(self) -> int:
        """Rows of the split, now that a data set is at its end: what comes is of the next one."""
        if self.first and self.before:
            own, good = self.first
            self.write([own, self.mismatched(own, self.before)], good)
        self.first = self.before = None
        return self.rows.count["rows"]

    def close(self) -> SplitIndex:
        (self.folder / LABELS).write_bytes(self.labels)
        return {**self.rows.close(), "labels": file_hash(self.folder / LABELS)}


def answer_at(sample: Sample) -> int:
    return list(sample[1]).index(1)
