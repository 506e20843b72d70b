"""Pictures into rows: `python -m train prepare --recipe images`.

    python -m train prepare --recipe images --dataset ./photos --image-size 128

Every picture is cut to a square around its middle and scaled, by Pillow in several threads. What is held out is chosen
by content, so that copies of a picture stay on one side, unless the set has a part for it. Held-out pictures stand in
the order of that lot: the first of them are of all classes. A file that cannot be read is named and counted.

The same pictures and settings give the same bytes, with one version of Pillow.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import math
import os
import shutil
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from train.cache import build_once
from train.data import left_out_in_words, parse_files
from train.data.in_threads import in_order
from train.data.index import Index, SplitIndex
from train.data.prepare import rows_folder
from train.data.read_records import SHOWN_BAD, Say, Tally
from train.data.rows import FORMAT
from train.data.split import draw
from train.errors import BadInput, first_line
from train.plan.machines.nodes import gb
from train.plan.model.catalogue import Dataset
from train.plan.settings import picture_sets
from train.plan.settings.read_settings import ImagesConfig
from train.recipes.images.rows import KIND, PictureWriter

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")
IDX_LARGEST = 2 << 30
IDX_MAGIC = 0x800
"""The mark of an IDX file of bytes, to which the number of dimensions is added."""
FETCH_AGAIN = "fetch them again"
MOST_PIXELS = 120_000_000
"""A small file may unpack to many more, and take a minute."""
GREY = ("1", "L", "LA", "I", "I;16", "I;16B")


@dataclass(frozen=True, slots=True)
class Source:
    """One picture before it is decoded."""

    where: str
    label: str
    split: str
    """Empty: chosen by content."""
    read: Callable[[], bytes]
    raw: tuple[int, int] | None = None
    """Height and width of grey pixels as they are; None: a file of Pillow's formats."""


@dataclass(frozen=True, slots=True)
class Seen:
    source: Source
    digest: str
    grey: bool

    @property
    def lot(self) -> float:
        return draw({"picture": self.digest})


@dataclass(frozen=True, slots=True)
class Pictures:
    seen: list[Seen]
    tally: Tally
    say: Say


def prepare(config: ImagesConfig, say: Say, *, out: str | None = None, date: str = "") -> Path:
    """The folder of rows; made only if it is not there yet. A date means nothing here."""
    data = config.data()
    say(f"data      {data.reason}")
    tally = Tally()
    seen = look(sources(data), config, tally, say)
    classes = picture_sets.classes_of(data)
    void = [name for name in classes if name not in {one.source.label for one in seen}]
    if void and not any(one.source.raw for one in seen):
        raise BadInput(f"no picture of {', '.join(void)} can be read", f"data set: {config.dataset}", "leave it out")
    known_by = [(one.digest, one.source.label, one.source.split) for one in seen]
    key = {
        "format": FORMAT,
        "kind": KIND,
        "pixels": "16 bit by 257",
        "data": hashlib.sha256(json.dumps(known_by).encode()).hexdigest(),
        "classes": classes,
        "settings": {name: getattr(config, name) for name in ("image_size", "eval_fraction")},
    }
    folder = rows_folder(data.name, key, out)
    known = folder.exists()
    build_once(folder, lambda unfinished: build(unfinished, config, Pictures(seen, tally, say), classes, key))
    left_out_in_words.note(folder, data.passed_over)
    report(folder, known, say)
    return folder


def sources(data: Dataset) -> list[Source]:
    assert data.folder
    if picture_sets.idx_files(data.folder):
        return [one for part in picture_sets.IDX_SPLITS for one in idx_sources(data.folder, part)]
    listed = picture_sets.listing(data)
    names = {one.file: str(one.file.relative_to(data.folder)) for one in listed}  # as its owner knows it, on every node
    return [Source(names[one.file], one.label, one.split, partial(content, one.file)) for one in listed]


def content(file: Path) -> bytes:
    if file.stat().st_size > parse_files.LONGEST_RECORD:
        raise ValueError(parse_files.too_long())
    return file.read_bytes()


def idx_sources(folder: Path, part: str) -> Iterator[Source]:
    """MNIST's format: sixteen bytes before the pictures, of them the last twelve three numbers; eight before labels."""
    file = folder / f"{part}{picture_sets.IDX_IMAGES}"
    if not file.is_file():
        return
    names = picture_sets.idx_classes(folder.resolve().name)
    (count, height, width), data = idx_content(file, 3, "pictures")
    (labelled,), labels = idx_content(folder / f"{part}-labels-idx1-ubyte.gz", 1, "labels")
    wrong = f"{count} pictures, and {labelled} labels" if count != labelled else ""
    if not wrong and count and (last := max(labels)) >= len(names):
        wrong = f"label {last}, and there are {len(names)} classes"
    if wrong:
        raise BadInput(f"the files of {part} do not go together: {wrong}", f"folder: {folder}", FETCH_AGAIN)
    every = np.frombuffer(data, "u1").reshape(count, height * width)
    for number in range(count):
        where = f"{part} number {number}"
        yield Source(
            where, names[labels[number]], picture_sets.IDX_SPLITS[part], every[number].tobytes, (height, width)
        )


def idx_content(file: Path, dimensions: int, what: str) -> tuple[tuple[int, ...], bytes]:
    """The numbers of its header, and what is behind them: as much as they tell of, or BadInput."""
    sizes: tuple[int, ...] = ()
    try:
        with gzip.open(file) as stream:
            magic, *found = struct.unpack(f">{1 + dimensions}I", stream.read(4 + 4 * dimensions))
            one = math.prod(found[1:])
            if found[0] * one > IDX_LARGEST:
                raise BadInput(
                    f"{file.name} tells of {found[0] * one / 1e9:.0f} GB, held in memory as a whole",
                    f"file: {file}",
                    "give a folder with a folder of pictures for each class",
                )
            if magic == IDX_MAGIC + dimensions and one and found[0]:
                sizes, data = tuple(found), stream.read(found[0] * one + 1)
    except (OSError, EOFError, struct.error, zlib.error):
        sizes = ()
    if not sizes:
        raise BadInput(f"{file.name} is not of MNIST's format, or damaged", f"file: {file}", FETCH_AGAIN)
    if len(data) != sizes[0] * one:
        held = f"{len(data) // one}{' or more' * (len(data) > sizes[0] * one)}"
        raise BadInput(f"{file.name} holds {held} {what}, and tells of {sizes[0]}", f"file: {file}", FETCH_AGAIN)
    return sizes, data


def look(found: list[Source], config: ImagesConfig, tally: Tally, say: Say) -> list[Seen]:
    """All that can be opened: their hash, and whether they are grey."""
    seen = []
    for source, one in in_order(peek, found, cores()):
        tally.records += 1
        if isinstance(one, Seen):
            seen.append(one)
        else:
            skipped(source, one, tally, say)
    stop_if_bad(config, tally)
    return seen


def cores() -> int:
    return len(os.sched_getaffinity(0))


def peek(source: Source) -> Seen | str:
    try:
        data = source.read()
        grey = True if source.raw else opened(data).mode in GREY
    except Exception as error:  # of a damaged file Pillow's readers raise of every kind
        return reason(error)
    return Seen(source, hashlib.sha256(data).hexdigest(), grey)


def decoded(one: Seen, *, edge: int, colours: int) -> NDArray[np.uint8] | str:
    from PIL import Image, ImageOps

    try:
        data, mode = one.source.read(), "L" if colours == 1 else "RGB"
        if one.source.raw:
            height, width = one.source.raw
            picture: Any = Image.frombytes("L", (width, height), data)
        else:
            picture = opened(data)
            picture.draft(mode, (2 * edge, 2 * edge))  # of a large JPEG a part is enough
            picture = ImageOps.exif_transpose(picture)
        picture = in_eight_bit(picture).convert(mode)
        if picture.size != (edge, edge):
            picture = ImageOps.fit(picture, (edge, edge), method=Image.Resampling.BICUBIC)
    except Exception as error:  # as above
        return reason(error)
    pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[None] if colours == 1 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def in_eight_bit(picture: Any) -> Any:
    """Pillow's own way cuts off all above 255: a 16-bit picture becomes white."""
    from PIL import Image

    if picture.mode in ("I", "F"):
        raise ValueError("its pixels are 32-bit numbers: save it with 8 or 16 bit")
    if not picture.mode.startswith("I;16"):
        return picture
    return Image.fromarray((np.asarray(picture).astype(np.uint32) // 257).astype(np.uint8))


def opened(data: bytes) -> Any:
    """Whatever a file is called: of other formats Pillow has the reader from strangers, PostScript's is Ghostscript."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data), formats=FORMATS)
    if picture.width * picture.height > MOST_PIXELS:
        raise ValueError(f"{picture.width} × {picture.height} pixels are more than {MOST_PIXELS // 10**6} million")
    return picture


def reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return f"no picture of a kind that is read ({', '.join(FORMATS)})"
    return first_line(error)


def skipped(source: Source, why: str, tally: Tally, say: Say) -> None:
    tally.bad += 1
    tally.first_bad.append(f"{source.where}: {why}")
    if tally.bad <= SHOWN_BAD:
        say(f"skipped   {source.where}: {why}")


def stop_if_bad(config: ImagesConfig, tally: Tally) -> None:
    limit = config.max_bad
    if tally.first_bad and tally.bad > (max(SHOWN_BAD, limit * tally.records) if limit < 1 else limit):
        raise BadInput(
            f"{tally.bad} broken pictures of {tally.records}; the first: {tally.first_bad[0]}",
            "",
            "remove them, or allow more: --set max_bad=0.05 (5 %) or --set max_bad=200",
        )


def split(found: list[Seen], fraction: float) -> dict[str, list[Seen]]:
    """What the set holds out itself; else by lot, at least one picture as long as one of its class remains."""
    if any(one.source.split for one in found):
        held = [one for one in found if one.source.split == "eval"]
        return {"train": [one for one in found if one.source.split != "eval"], "eval": sorted(held, key=lot)}
    last_of_class = {one.source.label: one.digest for one in sorted(found, key=lot)}  # who is always trained on
    trained = set(last_of_class.values())
    rest = [one for one in found if one.digest not in trained]
    held = [one for one in rest if one.lot < fraction]
    if fraction and rest and not held:
        held = [min(rest, key=lot)]
    away = {id(one) for one in held}
    return {"train": [one for one in found if id(one) not in away], "eval": sorted(held, key=lot)}


def lot(one: Seen) -> tuple[float, str]:
    return one.lot, one.source.where


def build(
    folder: Path, config: ImagesConfig, pictures: Pictures, classes: list[str], made_from: Mapping[str, object]
) -> None:
    edge, colours = config.image_size, 1 if all(one.grey for one in pictures.seen) else 3
    require_room(folder, len(pictures.seen) * colours * edge * edge)
    numbers = {name: number for number, name in enumerate(classes)}
    splits: dict[str, SplitIndex] = {}
    never = {one.source.label for one in pictures.seen if not one.source.raw}
    for name, some in split(pictures.seen, config.eval_fraction).items():
        writer = PictureWriter(folder / name, edge)
        for one, pixels in in_order(partial(decoded, edge=edge, colours=colours), some, cores()):
            if isinstance(pixels, str):
                skipped(one.source, pixels, pictures.tally, pictures.say)
            else:
                writer.add(pixels, numbers[one.source.label])
                never -= {one.source.label} if name == "train" else set()
        splits[name] = writer.close()
    stop_if_bad(config, pictures.tally)
    if never or not splits["train"]["rows"]:
        what = f"no picture{' of ' * bool(never)}{', '.join(sorted(never))} is left to train on"
        raise BadInput(what, f"data set: {config.dataset}", "hold out fewer (eval_fraction), add some, or leave it out")
    index = Index(
        format=FORMAT,
        kind=KIND,
        row_length=edge,
        colours=colours,
        splits=splits,
        data_format=KIND,
        records=pictures.tally.as_records(),
        classes=classes,
        made_from=made_from,
    )
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def require_room(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > 0.9 * free:
        raise BadInput(
            f"the rows of these pictures take {gb(needed)}, {gb(free)} are free",
            f"folder: {folder.parent}",
            "make room there, or use a smaller --set image_size=…",
        )


def report(folder: Path, known: bool, say: Say) -> None:
    index = json.loads((folder / "index.json").read_text())
    tally, train, held_out = index["records"], index["splits"]["train"], index["splits"]["eval"]
    say(f"pictures  {tally['records']}{f', {bad} broken' if (bad := tally['bad']) else ''}")
    colour = "grey" if index["colours"] == 1 else "in colour"
    edge = index["row_length"]
    say(f"rows      {train['rows']} of {edge} × {edge}, {colour}; {len(index['classes'])} classes; "
        f"{held_out['rows']} rows held out")  # fmt: skip
    say(f"folder    {folder}{' (was there already)' if known else ''}")
