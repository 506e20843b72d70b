"""Rows of pictures on disk: what `prepare --recipe images` writes once and every rank reads, memory-mapped.

A split is a folder of flat arrays, and index.json beside the splits names the classes, the edge and the hashes:

    pictures.bin uint8  [row, colour, down, right]; one colour where all pictures are grey, else three
    labels.bin   int32  number of the class

What is random in a picture (flip, shift) follows from the seed, the epoch and the row: not from who trains it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from train.data.index import SplitIndex
from train.data.rows import FORMAT, read_index
from train.errors import BadInput
from train.files import file_hash

KIND, LABELS = "pictures", "labels.json"
FILES = {"pictures": "u1", "labels": "<i4"}
SHIFT = 8
"""Part of the edge by which a picture is shifted at most: an eighth, and black where nothing is."""


@dataclass(frozen=True, kw_only=True)
class PictureRows:
    folder: Path
    hash: str
    row_length: int
    """Pixels each way."""
    pictures: NDArray[np.uint8]
    labels: NDArray[np.int32]
    targets: NDArray[np.int32]
    """One loss a picture."""
    seed: int = 0
    augment: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def token_count(self, indices: list[int]) -> int:
        """A picture counts as one."""
        return len(indices)

    def batch(self, indices: list[int], position: int = 0) -> dict[str, NDArray[Any]]:
        if self.augment:
            epochs = ((position + number) // len(self) for number in range(len(indices)))
            some = [
                moved(self.pictures[row], self.seed, epoch, row) for row, epoch in zip(indices, epochs, strict=True)
            ]
            pictures = np.stack(some)
        else:
            pictures = self.pictures[indices]
        return {"pictures": pictures, "labels": self.labels[indices].astype(np.int64)}

    def verify(self) -> None:
        found = split_hash(self.row_length, [file_hash(self.folder / f"{name}.bin") for name in FILES])
        if found != self.hash:
            raise BadInput(
                "the prepared pictures are damaged: their content does not have the hash that index.json names",
                f"folder: {self.folder}",
                "remove that folder and prepare the data set again",
            )


def moved(picture: NDArray[np.uint8], seed: int, epoch: int, row: int) -> NDArray[np.uint8]:
    """Perhaps mirrored, and shifted by a few pixels."""
    edge = picture.shape[-1]
    most = edge // SHIFT
    random = np.random.Generator(np.random.PCG64([seed, epoch, row]))
    mirrored, down, right = random.integers([2, 2 * most + 1, 2 * most + 1])
    wide = np.pad(picture, ((0, 0), (most, most), (most, most)))
    found = wide[:, down : down + edge, right : right + edge]
    return found[:, :, ::-1] if mirrored else found


def open_pictures(folder: Path, split: str = "train", *, seed: int = 0, augment: bool = False) -> PictureRows:
    index = read_index(folder)
    facts, edge = index["splits"][split], index["row_length"]
    arrays = {name: mapped(folder / split / f"{name}.bin", kind) for name, kind in FILES.items()}
    shape = (facts["rows"], index["colours"], edge, edge)
    if len(arrays["labels"]) != facts["rows"] or len(arrays["pictures"]) != np.prod(shape):
        raise BadInput(
            f"the prepared pictures are cut short: {facts['rows']} should be there",
            f"folder: {folder / split}",
            "remove that folder and prepare the data set again",
        )
    return PictureRows(
        folder=folder / split,
        hash=facts["hash"],
        row_length=edge,
        pictures=arrays["pictures"].reshape(shape),
        labels=arrays["labels"],
        targets=np.ones(facts["rows"], dtype=np.int32),
        seed=seed,
        augment=augment,
    )


def mapped(path: Path, kind: str) -> NDArray[Any]:
    if not path.is_file():
        raise BadInput("a file of the prepared pictures is missing", f"file: {path}", "prepare the data set again")
    return np.memmap(path, dtype=kind, mode="r") if path.stat().st_size else np.empty(0, dtype=kind)


def write_labels(folder: Path, classes: list[str]) -> None:
    """Writes the names of a model's outputs beside it, in their order."""
    (folder / LABELS).write_text(json.dumps(classes, indent=1, ensure_ascii=False) + "\n")


class PictureWriter:
    def __init__(self, folder: Path, edge: int) -> None:
        folder.mkdir(parents=True)
        self.edge, self.rows = edge, 0
        self.files: dict[str, BinaryIO] = {name: (folder / f"{name}.bin").open("wb") for name in FILES}
        self.hashes = {name: hashlib.sha256() for name in FILES}

    def add(self, picture: NDArray[np.uint8], label: int) -> None:
        for name, data in (("pictures", picture.tobytes()), ("labels", np.array([label], dtype="<i4").tobytes())):
            self.hashes[name].update(data)
            self.files[name].write(data)
        self.rows += 1

    def close(self) -> SplitIndex:
        for file in self.files.values():
            file.close()
        return {"rows": self.rows, "hash": split_hash(self.edge, [one.hexdigest() for one in self.hashes.values()])}


def split_hash(edge: int, file_hashes: list[str]) -> str:
    return hashlib.sha256(" ".join([str(FORMAT), KIND, str(edge), *file_hashes]).encode()).hexdigest()
