"""Rows of a recipe of one's own on disk: each of its names is one array, a row of it a row of the data.

recipe.py          the file that made them
index.json         what they were made from; of each name the shape and type of a row
train/NAME.npy     numpy's own format, memory-mapped; eval/NAME.npy is what is held out
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.data.index import ColumnIndex, Index, SplitIndex
from train.data.rows import FORMAT, read_index
from train.data.split import draw
from train.errors import BadInput
from train.files import file_hash

Columns = dict[str, NDArray[Any]]
RECIPE = "recipe.py"
TYPES = ("float32", "int64", "int32", "int16", "int8", "uint8", "bool")
AS = {"float64": "float32", "float16": "float32", "uint16": "int32", "uint32": "int64", "uint64": "int64"}
"""What a model computes with: Python's numbers are twice as wide."""
FEWEST = 2


@dataclass(frozen=True)
class OwnRows:
    folder: Path
    hash: str
    columns: Columns
    targets: NDArray[np.int32]
    """One a row: its loss counts once."""

    def __len__(self) -> int:
        return len(self.targets)

    @property
    def row_length(self) -> int:
        """Numbers of a row."""
        return max(1, sum(int(np.prod(column.shape[1:])) for column in self.columns.values()))

    def batch(self, indices: list[int], position: int = 0) -> Columns:
        return {name: np.array(column[indices]) for name, column in self.columns.items()}

    def token_count(self, indices: list[int]) -> int:
        """A row is counted as one."""
        return len(indices)

    def verify(self) -> None:
        if files_hash(self.folder, list(self.columns)) != self.hash:
            raise BadInput(
                "the rows are damaged: their content does not have the hash that index.json names",
                f"folder: {self.folder}",
                "remove that folder and make them again",
            )


def open_rows(folder: Path, split: str = "train") -> OwnRows:
    index = read_index(folder)
    facts = index["splits"][split]
    columns = {name: mapped(folder / split / f"{name}.npy") for name in index["columns"]}
    return OwnRows(folder / split, facts["hash"], columns, np.ones(facts["rows"], dtype=np.int32))


def mapped(path: Path) -> NDArray[Any]:
    try:
        found: NDArray[Any] = np.load(path, allow_pickle=False)[:] if is_empty(path) else np.load(path, mmap_mode="r")
        return found
    except (OSError, ValueError) as error:
        raise BadInput(f"rows cannot be read: {error}", f"file: {path}", "make them again") from None


def is_empty(path: Path) -> bool:
    """Whether a file has no rows: then nothing of it can be mapped."""
    return path.stat().st_size <= 128


def write_rows(folder: Path, train: Columns, held_out: Columns, made_from: Mapping[str, object]) -> None:
    splits: dict[str, SplitIndex] = {}
    for split, columns in (("train", train), ("eval", held_out)):
        (folder / split).mkdir()
        for name, column in columns.items():
            np.save(folder / split / f"{name}.npy", column, allow_pickle=False)
        rows = len(next(iter(columns.values())))
        splits[split] = {"rows": rows, "hash": files_hash(folder / split, list(columns))}
    about = {name: ColumnIndex(shape=list(col.shape[1:]), type=str(col.dtype)) for name, col in train.items()}
    index = Index(format=FORMAT, made_from=made_from, columns=about, splits=splits)
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def files_hash(folder: Path, names: list[str]) -> str:
    lines = [f"{name} {file_hash(folder / f'{name}.npy')}" for name in sorted(names)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def as_columns(given: object, what: str) -> Columns:
    """What a recipe's rows are, as arrays of one length; BadInput says what is wrong with them."""
    example = 'for example: return {"x": inputs, "y": targets}'
    if not isinstance(given, dict) or not given:
        raise BadInput(f"recipe: {what} gives {type(given).__name__}, not names with their numbers", fix=example)
    columns = {}
    for name, values in given.items():
        if not (isinstance(name, str) and name.isidentifier()):
            raise BadInput(f"recipe: {what}: {name!r} cannot name a column: letters, digits and _", fix=example)
        columns[name] = as_column(values, f"{what}: {name}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{name} has {count}" for name, count in lengths.items())
        raise BadInput(f"recipe: {what}: not the same number of rows: {found}", fix="a row is one entry of each")
    return columns


def as_column(values: Any, what: str) -> NDArray[Any]:
    try:
        column = np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except ValueError as error:  # a list of lists
        raise BadInput(
            f"recipe: {what} is no array: {error}", fix="all rows must have one length: pad the shorter ones"
        ) from None
    except TypeError as error:  # what torch has and numpy has not: bfloat16, a list of tensors that are on a card
        raise BadInput(
            f"recipe: {what} is no array: {error}", fix="give numbers that numpy has, such as values.float().cpu()"
        ) from None
    column = column.astype(AS.get(str(column.dtype), column.dtype))
    if str(column.dtype) not in TYPES:
        raise BadInput(f"recipe: {what} holds {column.dtype}, not numbers", fix="turn words into numbers in rows")
    if not column.ndim:
        raise BadInput(f"recipe: {what} is one number, not one a row", fix="a constant belongs into settings")
    if not len(column):
        raise BadInput(f"recipe: {what} has no rows", fix="give some, or leave out what is held out")
    if column.dtype == np.float32 and len(bad := np.flatnonzero(~np.isfinite(column.reshape(len(column), -1)).all(1))):
        raise BadInput(f"recipe: {what} has no finite number in row {bad[0]}", fix="leave such rows out, or fill them")
    return np.ascontiguousarray(column)


def split_by_content(columns: Columns, fraction: float) -> tuple[Columns, Columns]:
    """A row stays on its side when others come or go. Of few rows chance may choose none, or all: then it is the one
    that comes first by lot."""
    count = len(next(iter(columns.values())))
    lots = [draw(hashlib.sha256(b"".join(c[i].tobytes() for c in columns.values())).hexdigest()) for i in range(count)]
    held = np.array([lot < fraction for lot in lots])
    if fraction and count > FEWEST and (held.all() or not held.any()):
        held = np.arange(count) == int(np.argmin(lots))
    return {n: c[~held] for n, c in columns.items()}, {n: c[held] for n, c in columns.items()}
