"""Records out of files, one at a time, each with the line it stands in; a bad one is a value, not an exception.

Read as a stream, so that memory does not grow with the file: .jsonl .json .csv .txt, and .parquet where pyarrow is.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from train.data.convert_record import JsonObject
from train.errors import BadInput, first_line

BLOCK = 1 << 20
LONGEST_RECORD = 64 << 20
"""The longest record of any reader: what is longer is no record, but a file that is not what it is called."""
TEXT_PIECE = 1 << 16
NOT_UTF8 = "not UTF-8"
BETWEEN_OBJECTS = re.compile(r"[ \t\r\n,\[\]\ufeff]*")
ROWS_AT_ONCE = 16
"""Rows of parquet read at once: a value that stands in the file once may stand in every row of what is read."""
LARGEST_GROUP = 8 << 30


@dataclass(frozen=True, slots=True)
class Record:
    line: int
    value: JsonObject | None
    problem: str = ""
    unit: str = "line"


class Source:
    """A file as a stream of records; `position` of `size` bytes are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = path.stat().st_size
        self.position = 0

    def __iter__(self) -> Iterator[Record]:
        reader = READERS.get(self.path.suffix.lower())
        if reader is None:
            raise BadInput(
                f"files of type '{self.path.suffix}' cannot be read",
                f"file: {self.path}",
                f"convert it to one of: {' '.join(READERS)}",
            )
        if self.path.suffix.lower() != ".parquet":
            _refuse_utf16(self.path)
        return reader(self)


def _refuse_utf16(path: Path) -> None:
    """Refuses UTF-16, as Windows' programs write it; read as UTF-8, every record of it would be bad."""
    with path.open("rb") as file:
        start = file.read(512)
    if start[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\0" in start:
        raise BadInput(
            "the file is UTF-16, as Windows' programs write it, not UTF-8"
            if b"\0" in start[:4]
            else "the file is not UTF-8 text",
            f"file: {path}",
            f"convert it: iconv -f utf-16 -t utf-8 '{path.name}' > 'utf8-{path.name}'",
        )


def read_jsonl(source: Source) -> Iterator[Record]:
    with source.path.open("rb") as file:
        for number, raw in enumerate(_lines(file), 1):
            source.position += len(raw)
            if not raw.strip():
                continue
            if len(raw) > LONGEST_RECORD:
                source.position = file.tell()
                yield Record(number, None, too_long())
                continue
            try:
                value = json.loads(raw.rstrip().decode("utf-8-sig" if number == 1 else "utf-8"))
            except UnicodeDecodeError:
                yield Record(number, None, NOT_UTF8)
            except json.JSONDecodeError as error:  # its own words name a line, which is not that of the file
                yield Record(number, None, f"not JSON: {error.msg.removesuffix(' at')} at character {error.colno}")
            except (ValueError, RecursionError) as error:
                yield Record(number, None, f"not JSON: {error}")
            else:
                yield _object(number, value)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file; of one that is too long only its beginning."""
    while line := file.readline(LONGEST_RECORD + 1):
        rest = line
        while len(rest) > LONGEST_RECORD and not rest.endswith(b"\n"):
            rest = file.readline(LONGEST_RECORD + 1)
        yield line


def too_long() -> str:
    return f"longer than {LONGEST_RECORD >> 20} MB"


def read_json(source: Source) -> Iterator[Record]:
    """One array of objects, or objects behind one another, decoded object by object."""
    decoder = json.JSONDecoder()
    with source.path.open("rb") as file:
        text, at, line = _more(source, file, ""), 0, 1
        while True:
            start = at + len(BETWEEN_OBJECTS.match(text, at)[0])  # type: ignore[index]
            line += text.count("\n", at, start)
            try:
                value, end = decoder.raw_decode(text, start)
            except (ValueError, RecursionError) as error:
                rest = text[start:]
                source.position += len(text[at:start].encode())
                text, at = _more(source, file, rest), 0
                if len(text) > len(rest) and len(rest) < LONGEST_RECORD:
                    continue
                if not rest.strip():
                    return
                raise BadInput(
                    f"not JSON: {error}",
                    f"file: {source.path}, in the record that starts at line {line}",
                    "fix the file, or write one object per line and call it .jsonl",
                ) from None
            source.position += len(text[at:end].encode())
            yield _object(line, value)
            line += text.count("\n", start, end)
            at = end


def _more(source: Source, file: BinaryIO, text: str) -> str:
    """The text with at least as much again behind it, so that a long record is not decoded block by block."""
    block = file.read(max(BLOCK, len(text))) + _rest_of_character(file)
    try:
        return text + block.decode("utf-8")
    except UnicodeDecodeError as error:
        where = f"file: {source.path}, near byte {file.tell() - len(block) + error.start}"
        raise BadInput("the file is not UTF-8", where, "convert it: iconv -f latin1 -t utf-8") from None


def _rest_of_character(file: BinaryIO) -> bytes:
    """What completes the UTF-8 character that the last read may have cut."""
    rest = b""
    while (byte := file.read(1)) and 0x80 <= byte[0] < 0xC0 and len(rest) < 3:
        rest += byte
    if byte:
        file.seek(-1, 1)
    return rest


def read_csv(source: Source) -> Iterator[Record]:
    csv.field_size_limit(LONGEST_RECORD // 4)
    with source.path.open("r", encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        header = file.readline(LONGEST_RECORD)
        names_it = header.startswith("sep=")  # as Excel writes it
        if not names_it:
            file.seek(0)
        separator = header[4:5] if names_it else max(",;\t", key=header.count)
        reader = csv.DictReader(_counted(source, file), delimiter=separator, strict=True)
        try:
            require_different(reader.fieldnames or [], source.path)
            for value in reader:
                yield _row(reader.line_num + names_it, value)
        except csv.Error as error:
            raise BadInput(
                f"not CSV: {error}",
                f"file: {source.path}, line {reader.reader.line_num}",
                "look for a quotation mark that is not closed, or not doubled, before that line",
            ) from None


def require_different(names: Sequence[str], file: Path) -> None:
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise BadInput(f"two columns are called {twice[0]!r}", f"file: {file}", "give one of them another name")


def _counted(source: Source, file: TextIO) -> Iterator[str]:
    while line := file.readline(LONGEST_RECORD):  # what is longer is no field of csv's any more
        source.position += len(line)
        yield line


def _row(line: int, value: dict[Any, Any]) -> Record:
    if None in value or None in value.values():
        return Record(line, None, f"has {'more' if None in value else 'fewer'} columns than the header")
    try:
        "".join(value.values()).encode()
    except UnicodeEncodeError:  # surrogateescape has kept a byte
        return Record(line, None, NOT_UTF8)
    return Record(line, value)


def read_txt(source: Source) -> Iterator[Record]:
    """Pieces of some 64 KB, cut between paragraphs where there are any."""
    piece, start, number = b"", 1, 0
    with source.path.open("rb") as file:
        while line := file.readline(TEXT_PIECE):
            number += 1
            source.position += len(line)
            if not line.endswith(b"\n"):
                line += _rest_of_character(file)
            piece += line
            between_paragraphs = not line.strip() and len(piece) >= TEXT_PIECE // 2
            if between_paragraphs or len(piece) >= TEXT_PIECE:
                yield _text(start, piece)
                piece, start = b"", number + 1
    if piece.strip():
        yield _text(start, piece)


def _text(line: int, piece: bytes) -> Record:
    try:
        return Record(line, {"text": piece.decode("utf-8-sig")})
    except UnicodeDecodeError:
        return Record(line, None, "the piece of text that starts here is not UTF-8")


def read_parquet(source: Source) -> Iterator[Record]:
    try:
        from pyarrow.parquet import ParquetFile
    except ImportError:
        raise BadInput(
            "reading .parquet needs pyarrow, which is not installed",
            f"file: {source.path}",
            "pip install -r requirements/parquet.txt, or convert the file to .jsonl",
        ) from None
    try:
        file = ParquetFile(source.path)
    except (OSError, ValueError) as error:
        raise BadInput(f"not parquet: {first_line(error)}", f"file: {source.path}") from None
    groups = [file.metadata.row_group(group).total_byte_size for group in range(file.num_row_groups)]
    if max(groups, default=0) > LARGEST_GROUP:
        raise _too_large(source, f"a part of {max(groups) / 1e9:.0f} GB")
    number = 0
    try:
        for batch in file.iter_batches(batch_size=ROWS_AT_ONCE):
            source.position += int(source.size * batch.num_rows / max(1, file.metadata.num_rows))
            for row in range(batch.num_rows):
                number += 1
                one = batch.slice(row, 1)
                long = one.nbytes > LONGEST_RECORD
                yield Record(number, None if long else one.to_pylist()[0], too_long() if long else "", "row")
    except (OSError, ValueError, NotImplementedError) as error:
        what = f"not parquet behind row {number}: {first_line(error)}"
        raise BadInput(what, f"file: {source.path}", "fetch or write it again") from None
    except MemoryError:
        raise _too_large(source, f"{ROWS_AT_ONCE} rows, behind row {number},") from None


def _too_large(source: Source, what: str) -> BadInput:
    return BadInput(
        f"{what} must be in memory at once, and is too large",
        f"file: {source.path}",
        "write it with smaller row groups",
    )


def _object(line: int, value: Any) -> Record:
    if isinstance(value, dict):
        return Record(line, value)
    return Record(line, None, f"not an object but {type(value).__name__}")


READERS = {
    ".jsonl": read_jsonl,
    ".json": read_json,
    ".csv": read_csv,
    ".txt": read_txt,
    ".parquet": read_parquet,
}
