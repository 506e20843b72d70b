"""Data sets of pictures: where they are, which class each picture has, and which are held out by whoever made the set.

photos/CLASS/FILE                       a folder for each class
photos/train/CLASS/FILE photos/test/…   the same, held out already
photos/list.csv (or .jsonl)             a column `file`, beside the table or below, and a column `label`
*-images-idx3-ubyte.gz *-labels-…       MNIST's own files: those of t10k are held out
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.errors import BadInput
from train.plan.home_folder import refuse_home
from train.plan.model.catalogue import Dataset, catalogue, is_hidden
from train.plan.run_name import as_name

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
TABLES = (".csv", ".jsonl")
FILE_COLUMNS, LABEL_COLUMNS = ("file", "path", "image", "filename", "file_name"), ("label", "class", "category")
PART = re.compile(r"(?:(train(?:ing)?)|test(?:ing)?|val(?:id(?:ation)?)?|eval(?:uation)?)(?:[ _-]?(?:set|data))?", re.I)
"""The name of a folder that is a part of a data set, which some train and some hold out."""
SHOWN = 3
IDX_IMAGES = "-images-idx3-ubyte.gz"
IDX_SPLITS = {"train": "train", "t10k": "eval"}
FORMS = "a folder with a sub-folder for each class, or a table with the columns file and label"


@dataclass(frozen=True, slots=True)
class Listed:
    file: Path
    label: str
    split: str = ""
    """train or eval where the set says so; else it is chosen by content."""


def resolve(name: str) -> Dataset:
    entry = catalogue()["datasets"].get(name)
    if entry:
        return of_package(name, entry)
    path = Path(name).expanduser()
    if path.is_file() and path.suffix.lower() in TABLES:
        files = (path, *(picture.file for picture in of_table(path)))
        reason = f"{name} is a table of {len(files) - 1} pictures of this machine"
        return Dataset(name=as_name(path.stem), reason=reason, file=path, files=files, folder=path.parent)
    if not path.is_dir():
        raise BadInput(f"dataset: '{name}' is no data set of pictures", fix=f"give {FORMS}, or fashion-mnist")
    if idx := idx_files(path):
        return Dataset(name=as_name(path.resolve().name), reason=f"{name} has MNIST's files", files=idx, folder=path)
    pictures = of_folder(path)
    reason = f"{name} is a folder of {len(pictures)} pictures in {len({picture.label for picture in pictures})} classes"
    left = passed_over(path, pictures)
    reason += f"; {left}" if left else ""
    files = tuple(picture.file for picture in pictures)
    return Dataset(name=as_name(path.resolve().name), reason=reason, files=files, folder=path, passed_over=left)


def of_package(name: str, entry: dict[str, Any]) -> Dataset:
    """The data set of a catalogue entry that a package of the distribution brings."""
    if "package" not in entry:
        raise BadInput(f"dataset: {name} is text", fix=f"give {FORMS}, or fashion-mnist")
    folder = Path(entry["folder"])
    if not (files := idx_files(folder)):
        raise BadInput(
            f"dataset: {name} is not installed on this machine",
            f"folder: {folder}",
            f"sudo apt install {entry['package']} (Debian, Ubuntu)",
        )
    reason = f"{name} is in the catalogue, installed by {entry['package']}"
    return Dataset(name=name, reason=reason, files=files, folder=folder, listed=True)


def classes_of(data: Dataset) -> list[str]:
    """The names of the classes in the order of their numbers."""
    assert data.folder
    if idx_files(data.folder):
        return idx_classes(data.folder.resolve().name)
    return in_order(picture.label for picture in listing(data))


def listing(data: Dataset) -> list[Listed]:
    assert data.folder
    return of_table(data.file) if data.file else of_folder(data.folder)


def in_order(labels: Any) -> list[str]:
    """The labels in order, those that are numbers as numbers."""
    return sorted(set(labels), key=lambda label: (not label.isdecimal(), int(label) if label.isdecimal() else 0, label))


def of_folder(folder: Path) -> list[Listed]:
    refuse_home(folder)
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and not is_hidden(path.relative_to(folder))]
    parts = {path: part for path in folders if (part := PART.fullmatch(path.name))}
    trains = [part for part in parts.values() if part[1]]
    holds_out = bool(trains) and len(trains) < len(parts)
    if others := [path.name for path in folders if holds_out and path not in parts]:
        raise BadInput(
            f"beside {' and '.join(path.name for path in parts)} there is {', '.join(others)}",
            f"folder: {folder}",
            "move it away, or into the one that it belongs to",
        )
    if trains and len(parts) == len(folders):
        pictures = [
            picture
            for path, part in parts.items()
            for picture in of_classes(path, ("train" if part[1] else "eval") if holds_out else "")
        ]
        require_all_trained(folder, pictures)
    else:
        pictures = of_classes(folder, "")
    if not pictures:
        left = passed_over(folder, [])
        problem = "this folder holds no pictures in sub-folders" + (f"; {left}" if left else "")
        raise BadInput(problem, f"folder: {folder}", f"give {FORMS}")
    if len({picture.label for picture in pictures}) < 2:
        raise BadInput(
            "all pictures are of one class",
            f"folder: {folder}",
            "make a sub-folder for each class, and name that above",
        )
    return pictures


def require_all_trained(folder: Path, pictures: list[Listed]) -> None:
    trained = {picture.label for picture in pictures if picture.split != "eval"}
    if never := sorted({picture.label for picture in pictures} - trained):
        raise BadInput(
            f"all pictures of {', '.join(never[:SHOWN])} are held out, and nothing teaches what they are",
            f"folder: {folder}",
            "move some of them to what is trained on, or that class away",
        )


def of_classes(folder: Path, split: str) -> list[Listed]:
    return [
        Listed(file, kind.name, split)
        for kind in sorted(folder.iterdir())
        if kind.is_dir()
        for file in sorted(kind.rglob("*"))
        if file.suffix.lower() in SUFFIXES and not is_hidden(file.relative_to(folder)) and file.is_file()
    ]


def passed_over(folder: Path, pictures: list[Listed]) -> str:
    """What else lies in the folder, in words: a person may think that it is trained on."""
    files_taken = {picture.file for picture in pictures}
    folders_of_pictures = {above for file in files_taken for above in file.parents}
    left = [
        path
        for path in sorted(folder.rglob("*"))
        if not is_hidden(path.relative_to(folder)) and path not in files_taken
    ]
    files = [path for path in left if path.is_file()]
    empty = [path for path in left if path.is_dir() and path not in folders_of_pictures]
    words = [f"no picture is in {named(folder, empty)}"] if empty else []
    if files:
        words.append(f"no picture that is read: {named(folder, files)}; convert pictures to {SUFFIXES[0]}")
    return "; ".join(words)


def named(folder: Path, paths: list[Path]) -> str:
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return ", ".join(str(path.relative_to(folder)) for path in paths[:SHOWN]) + more


def of_table(table: Path) -> list[Listed]:
    pictures, columns = [], None
    for number, record in enumerate(records(table), 1):
        columns = columns or tuple(
            next((n for n in names if n in record), "") for names in (FILE_COLUMNS, LABEL_COLUMNS)
        )
        values = ["" if (value := record.get(column)) is None else str(value) for column in columns]
        if not all(values):
            raise BadInput(f"record {number} has no file, or no label", f"file: {table}", "columns: file and label")
        file = table.parent / values[0]
        if Path(values[0]).is_absolute() or ".." in Path(values[0]).parts:
            raise BadInput(
                f"record {number}: {values[0]} does not lie beside the table or below it",
                f"file: {table}",
                "move the table above its pictures, and name them from there",
            )
        pictures.append(Listed(file, values[1]))
    missing = [picture.file for picture in pictures if not picture.file.is_file()]
    if missing:
        raise BadInput(
            f"{len(missing)} pictures of {len(pictures)} are not there, first {missing[0]}", f"file: {table}"
        )
    if len({picture.label for picture in pictures}) < 2:
        raise BadInput("the table has fewer than two classes", f"file: {table}", "columns: file and label")
    return pictures


def records(table: Path) -> Iterator[dict[str, object]]:
    try:
        with table.open(encoding="utf-8-sig", newline="") as lines:
            if table.suffix.lower() == ".csv":
                header = lines.readline()
                lines.seek(0)
                yield from csv.DictReader(lines, delimiter=max(",;\t", key=header.count))
            else:
                yield from (json_object(line) for line in lines if line.strip())
    except (ValueError, csv.Error) as error:
        raise BadInput(f"the table cannot be read: {error}", f"file: {table}", "UTF-8, with file and label") from None


def json_object(line: str) -> dict[str, object]:
    record = json.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"{line.strip()[:40]} is no JSON object")
    return record


def idx_files(folder: Path) -> tuple[Path, ...]:
    if not (folder / f"train{IDX_IMAGES}").is_file():
        return ()
    return tuple(sorted(folder.glob("*-ubyte.gz")))


def idx_classes(name: str) -> list[str]:
    """The names of the classes as the catalogue has them; else the digits."""
    listed = catalogue()["datasets"].get(name, {}).get("classes")
    return list(listed) if listed else [str(digit) for digit in range(10)]
