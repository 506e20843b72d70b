"""Packed rows on disk: what `prepare` writes once and every rank reads, memory-mapped.

A row is a training sequence of at most `row_length` tokens: one or more samples behind one another, each blind to the
others. A split is a folder of flat little-endian arrays, and index.json beside the splits names their types and hashes:

    tokens.bin   uint16|uint32  all tokens of all rows, one after another
    trained.bin  uint8          1 where the token is a target
    samples.bin  int64          where each sample starts in tokens, and the end
    rows.bin     int64          which sample each row starts with, and the end
    targets.bin  int32          target tokens of each row
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from train.data.index import Index, SplitIndex
from train.data.mix_data_sets import RowsPart, parts_in
from train.data.packing import Sample
from train.errors import BadInput
from train.files import file_hash

FORMAT = 1
IGNORED = -100
FILES = ("tokens", "trained", "samples", "rows", "targets")

Ints: TypeAlias = "NDArray[np.int64]"


class Rows(Protocol):
    """All that a run knows of its data, whatever a row is."""

    @property
    def folder(self) -> Path:
        """The folder of this split; the prepared folder is above it."""

    @property
    def hash(self) -> str: ...
    @property
    def row_length(self) -> int:
        """Tokens of the longest row."""

    @property
    def targets(self) -> NDArray[np.int32]:
        """How many target tokens each row has: its summed loss is a sum over them."""

    def __len__(self) -> int: ...
    def batch(self, indices: list[int], position: int = 0) -> dict[str, NDArray[Any]]:
        """The given rows as the recipe's loss takes them; `position`: of the first one in the stream of all rows, for
        what differs from epoch to epoch."""

    def token_count(self, indices: list[int]) -> int:
        """The count of all tokens in these rows, for the figures of speed."""

    def verify(self) -> None:
        """Reads everything once more: what does not have its hash must not train."""


@dataclass(frozen=True)
class PackedRows:
    """Rows of text: one split of a prepared dataset."""

    folder: Path
    hash: str
    row_length: int
    pad_id: int
    tokens: NDArray[Any]
    trained: NDArray[np.uint8]
    samples: Ints
    rows: Ints
    targets: NDArray[np.int32]
    parts: tuple[RowsPart, ...] = ()
    """Which rows are of which data set, where they are of several."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def packs(self) -> bool:
        """Whether any row has more than one sample."""
        return len(self.samples) > len(self.rows)

    def token_count(self, indices: list[int]) -> int:
        return sum(int(self.samples[self.rows[row + 1]] - self.samples[self.rows[row]]) for row in indices)

    def samples_of(self, row: int) -> range:
        """The numbers of a row's samples."""
        return range(int(self.rows[row]), int(self.rows[row + 1]))

    def lengths(self, samples: Sequence[int]) -> list[int]:
        """The tokens of each sample."""
        return [int(self.samples[sample + 1] - self.samples[sample]) for sample in samples]

    def targets_of(self, samples: Sequence[int]) -> int:
        """The target tokens of samples."""
        return sum(int(self.trained[self.samples[sample] : self.samples[sample + 1]].sum()) for sample in samples)

    def batch(self, indices: list[int], position: int = 0) -> dict[str, Ints]:
        return self.packed([self.samples_of(row) for row in indices])

    def packed(self, rows: Sequence[Sequence[int]]) -> dict[str, Ints]:
        """Rows of the given samples, right-padded to the longest of them; positions begin at 0 in each sample. Padding
        is a sample of its own, never a target."""
        shape = (len(rows), max((sum(self.lengths(row)) for row in rows), default=1))
        input_ids = np.full(shape, self.pad_id, dtype=np.int64)
        labels = np.full(shape, IGNORED, dtype=np.int64)
        position_ids = np.zeros(shape, dtype=np.int64)
        for at, row in enumerate(rows):
            first = 0
            for sample in row:
                start, end = int(self.samples[sample]), int(self.samples[sample + 1])
                columns = slice(first, first + end - start)
                input_ids[at, columns] = self.tokens[start:end]
                labels[at, columns] = np.where(self.trained[start:end] == 1, input_ids[at, columns], IGNORED)
                position_ids[at, columns] = np.arange(end - start)
                first += end - start
            position_ids[at, first:] = np.arange(shape[1] - first)
        return {"input_ids": input_ids, "labels": labels, "position_ids": position_ids}

    def verify(self) -> None:
        """Read the files again and compare with the hash of the index: a damaged copy must not train."""
        hash_of_files = split_hash(self.row_length, (file_hash(self.folder / f"{name}.bin") for name in FILES))
        if hash_of_files != self.hash:
            raise BadInput(
                "the prepared dataset is damaged: its content does not have the hash that index.json names",
                f"folder: {self.folder}",
                "remove that folder and prepare the dataset again",
            )


def open_rows(folder: str | Path, split: str = "train") -> PackedRows:
    """The rows of a prepared dataset; the split `eval` has length 0 where nothing was held out."""
    folder = Path(folder)
    index = read_index(folder)
    if index.get("kind") == "prompts":
        raise BadInput("these rows are prompts without answers", f"folder: {folder}", "train them with recipe=grpo")
    if index.get("kind") == "pairs":
        raise BadInput("these rows are answers to compare", f"folder: {folder}", "train them with recipe=preference")
    if "token_bytes" not in index:
        raise BadInput("these rows are pictures, not text", f"folder: {folder}", "train them with recipe=images")
    return packed_rows(folder, index, split)


def packed_rows(folder: Path, index: Index, split: str) -> PackedRows:
    facts = index["splits"][split]
    types = {"tokens": f"<u{index['token_bytes']}", "trained": "u1", "samples": "<i8", "rows": "<i8", "targets": "<i4"}
    arrays = {name: mapped(folder / split / f"{name}.bin", types[name]) for name in FILES}
    if len(arrays["targets"]) != facts["rows"] or len(arrays["tokens"]) != facts["tokens"]:
        raise BadInput(
            f"the prepared dataset is cut short: {len(arrays['targets'])} of {facts['rows']} rows are there",
            f"folder: {folder / split}",
            "remove that folder and prepare the dataset again",
        )
    parts = parts_in(index, split)
    return PackedRows(folder / split, facts["hash"], index["row_length"], index["pad_id"], **arrays, parts=parts)


def read_index(folder: Path) -> Index:
    path = folder / "index.json"
    try:
        index: Index = json.loads(path.read_text())
    except FileNotFoundError:
        raise BadInput(
            "this is no prepared dataset: it has no index.json",
            f"folder: {folder}",
            "make it with: python -m train prepare --dataset DATA --model MODEL",
        ) from None
    except ValueError as error:
        raise BadInput(f"index.json is damaged: {error}", f"file: {path}", "prepare the dataset again") from None
    if index.get("format") != FORMAT:
        raise BadInput(
            f"the prepared dataset has format {index.get('format')}, this version reads {FORMAT}",
            f"folder: {folder}",
            "prepare the dataset again",
        )
    return index


def date_of(folder: Path) -> str:
    """What the model's template wrote as today's date into these rows; empty where it writes none."""
    return str(read_index(folder).get("date", "")) if (folder / "index.json").is_file() else ""


def template_of(folder: Path) -> str:
    """The template of one's own by which these rows were made, or the model's with a system message of one's own; empty
    where it is the model's as it is."""
    if not (folder / "index.json").is_file() or not (index := read_index(folder)).get("own_template"):
        return ""
    return index["chat_template"]


class RowWriter:
    """Appends rows to a split; what it holds in memory does not grow with the dataset."""

    def __init__(self, folder: Path, row_length: int, token_bytes: int) -> None:
        folder.mkdir(parents=True)
        self.row_length = row_length
        self.token_type = np.dtype(f"<u{token_bytes}")
        self.files: dict[str, BinaryIO] = {name: (folder / f"{name}.bin").open("wb") for name in FILES}
        self.hashes = {name: hashlib.sha256() for name in FILES}
        self.count = {"rows": 0, "samples": 0, "tokens": 0, "targets": 0}
        self._put("samples", np.array([0], dtype="<i8"))
        self._put("rows", np.array([0], dtype="<i8"))

    def add(self, samples: Sequence[Sample]) -> None:
        """One row of samples."""
        tokens = np.concatenate([np.asarray(sample, dtype=self.token_type) for sample, _ in samples])
        trained = np.concatenate([np.asarray(flags, dtype="u1") for _, flags in samples])
        ends = np.cumsum([len(sample) for sample, _ in samples], dtype="<i8")
        trained[[0, *ends[:-1]]] = 0  # nothing before a sample predicts its first token
        self._put("samples", ends + self.count["tokens"])
        self.count["rows"] += 1
        self.count["samples"] += len(samples)
        self.count["tokens"] += len(tokens)
        self.count["targets"] += int(trained.sum())
        self._put("tokens", tokens)
        self._put("trained", trained)
        self._put("rows", np.array([self.count["samples"]], dtype="<i8"))
        self._put("targets", np.array([trained.sum()], dtype="<i4"))

    def close(self) -> SplitIndex:
        for file in self.files.values():
            file.close()
        whole = split_hash(self.row_length, (self.hashes[name].hexdigest() for name in FILES))
        return cast(SplitIndex, {**self.count, "hash": whole})

    def _put(self, name: str, values: NDArray[Any]) -> None:
        data = values.tobytes()
        self.hashes[name].update(data)
        self.files[name].write(data)


def split_hash(row_length: int, file_hashes: Any) -> str:
    return hashlib.sha256(" ".join([str(FORMAT), str(row_length), *file_hashes]).encode()).hexdigest()


def mapped(path: Path, dtype: str) -> NDArray[Any]:
    if not path.is_file():
        raise BadInput("a file of the prepared dataset is missing", f"file: {path}", "prepare the dataset again")
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.memmap(path, dtype=dtype, mode="r")


def padded_left(prompts: Sequence[Sequence[int]], pad_id: int) -> dict[str, NDArray[np.int64]]:
    """Pads on the left, so that all answers begin at one place."""
    length = max(map(len, prompts), default=1)
    input_ids = np.full((len(prompts), length), pad_id, dtype=np.int64)
    mask = np.zeros((len(prompts), length), dtype=np.int64)
    for row, tokens in enumerate(prompts):
        input_ids[row, length - len(tokens) :] = tokens
        mask[row, length - len(tokens) :] = 1
    return {"input_ids": input_ids, "attention_mask": mask}
