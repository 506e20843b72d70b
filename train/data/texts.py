"""Texts into rows for a model from nothing: `python -m train prepare --recipe pretrain`.

    python -m train prepare --recipe pretrain --dataset ./texts --vocab-size 8192 --max-seq-length 512

A file of a folder is one text; of a .jsonl each record is one; a single long file is cut between paragraphs. Texts that
are held out are chosen by their content, before the tokenizer is made of the others. All texts stand behind one
another, a mark before and after each, in rows of one length. Where a text goes on in the next row, that begins with the
last token of the row before: so every token but a text's first mark is predicted once.

The same texts and settings give the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train.cache import build_once
from train.data.prepare import dataset_files, report, rows_folder
from train.data.records import SHOWN_BAD, Reader, Say, Tally, examples
from train.data.rows import FORMAT, RowWriter
from train.data.split import draw
from train.data.tokenizers import load_or_make, tokenizer_hash
from train.errors import BadInput
from train.files import file_hash
from train.plan.model.catalogue import TEXTS
from train.plan.settings.config import PretrainConfig

TOKENIZER, PROMPTS = "tokenizer", "prompts.json"
"""What lies beside the rows: the tokenizer that made them, and the first words of some texts that are held out."""
PROMPT_CHARS, PROMPT_COUNT = 24, 3
LONGEST_TEXT = 64 << 20
PIECE = 16 << 10
"""Characters of a part of a file that is the whole data set: enough parts that some can be held out."""
PLAIN_TEXT = tuple(suffix for suffix in TEXTS if suffix != ".jsonl")
KEY_SETTINGS = ("vocab_size", "max_seq_length", "eval_fraction")


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    where: str


def prepare(
    config: PretrainConfig, say: Say, *, out: str | None = None, data_format: str = "auto", date: str = ""
) -> Path:
    """The folder of rows with its tokenizer; made only if it is not there yet. No template writes a `date` here."""
    data = config.data()
    say(f"data      {data.reason}")
    files = dataset_files(data)
    if not any(file.stat().st_size for file in files):
        raise BadInput("the data set is empty", f"file: {files[0]}")
    key = {
        "format": FORMAT,
        "data": [file_hash(file) for file in files],
        "tokenizer": tokenizer_hash(config.tokenizer),
        "settings": {name: getattr(config, name) for name in KEY_SETTINGS} | {"format": data_format},
    }
    folder = rows_folder(data.name, key, out)
    known = folder.exists()
    texts = Texts(files, config, say, data_format)
    build_once(folder, lambda unfinished: build(unfinished, config, texts, key))
    report(folder, known, say)
    return folder


class Texts:
    """All texts of a data set, again each time they are asked for; what cannot be read is named, counted, and stops it
    at a limit."""

    def __init__(self, files: list[Path], config: PretrainConfig, say: Say, data_format: str = "auto") -> None:
        self.files, self.config, self.say, self.data_format = files, config, say, data_format
        self.tally = Tally()
        self.unreadable: list[str] = []
        self.first_time = True

    def __iter__(self) -> Iterator[Text]:
        self.tally, self.unreadable = Tally(), []
        for file in self.files:
            read = self.plain if file.suffix.lower() in PLAIN_TEXT else self.records
            for text in read(file):
                self.tally.records += 1
                yield text
        self._stop_if_bad()
        self.first_time = False

    def plain(self, file: Path) -> Iterator[Text]:
        try:
            yield from pieces(file, PIECE if len(self.files) == 1 else LONGEST_TEXT)
        except UnicodeDecodeError:
            self._bad(f"{file.name}: not UTF-8")

    def records(self, file: Path) -> Iterator[Text]:
        """A conversation is read as the text that its turns make."""
        quiet: Say = self.say if self.first_time else lambda _: None
        reader = Reader([file], quiet, format_name=self.data_format, max_bad=self.config.max_bad)
        for found, example in reader.made(examples):
            yield Text(example.text or "\n\n".join(str(turn["content"]) for turn in example.messages), found.where)
        self._count_bad(reader.tally.bad, reader.tally.first_bad)

    def _bad(self, what: str) -> None:
        self.unreadable.append(what)
        self._count_bad(1, [what])
        if self.first_time and self.tally.bad <= SHOWN_BAD:
            self.say(f"skipped   {what}")

    def _count_bad(self, count: int, first: list[str]) -> None:
        self.tally.records += count
        self.tally.bad += count
        self.tally.first_bad += first

    def _stop_if_bad(self) -> None:
        """Stops where too many of the records that the reader has judged are bad."""
        tally, limit = self.tally, self.config.max_bad
        if self.unreadable and tally.bad > (limit * tally.records if limit < 1 else limit):
            raise BadInput(
                f"{tally.bad} bad texts of {tally.records}; the first: {self.unreadable[0]}",
                f"folder: {self.files[0].parent}",
                "convert it to UTF-8, remove it, or allow more of them: max_bad: 0.05 (5 %) or max_bad: 200",
            )


def pieces(file: Path, least: int) -> Iterator[Text]:
    """The parts of a file, cut at an empty line as soon as a part has `least` characters."""
    part: list[str] = []
    size, first, number = 0, 1, 1
    with file.open(encoding="utf-8-sig", newline="") as lines:
        while line := lines.readline(4 * least):
            part.append(line)
            size += len(line)
            number += line[-1] in "\r\n"
            if (size >= least and not line.strip()) or size >= 4 * least:
                yield Text("".join(part), f"{file.name} line {first}")
                part, size, first = [], 0, number
    if "".join(part).strip():
        yield Text("".join(part), f"{file.name} line {first}")


def held_out(texts: Texts, fraction: float) -> frozenset[int]:
    """Numbers of the texts that are held out: by their content, as in fine-tuning. Of few texts chance may choose none,
    or all: then it is the one that comes first by lot, as long as one remains."""
    lots = [draw({"text": text.text}) for text in texts]
    if not lots:
        raise BadInput("the data set has no text", f"file: {texts.files[0]}", "docs/recipes.md shows what is read")
    if not fraction or len(lots) == 1:
        return frozenset()
    chosen = frozenset(number for number, lot in enumerate(lots) if lot < fraction)
    return chosen if 0 < len(chosen) < len(lots) else frozenset([lots.index(min(lots))])


def build(folder: Path, config: PretrainConfig, texts: Texts, key: dict[str, Any]) -> None:
    away = held_out(texts, config.eval_fraction)
    kept = (text.text for number, text in enumerate(texts) if number not in away)
    tokenizer = load_or_make(config.tokenizer, config.vocab_size, kept, folder / TOKENIZER)
    length = config.max_seq_length
    writers = {split: RowWriter(folder / split, length, tokenizer.token_bytes) for split in ("train", "eval")}
    streams = {split: RowStream(length) for split in writers}
    prompts: list[list[int]] = []
    for number, text in enumerate(texts):
        split = "eval" if number in away else "train"
        tokens = [tokenizer.end_id, *tokenizer.encode(text.text), tokenizer.end_id]
        texts.tally.longest = max(texts.tally.longest, len(tokens))
        if split == "eval" and len(prompts) < PROMPT_COUNT:
            prompts.append([tokenizer.end_id, *tokenizer.encode(first_words(text.text))])
        for row in streams[split].add(tokens):
            writers[split].add(row)
    for split, stream in streams.items():
        for row in stream.finish():
            writers[split].add(row)
    index = {
        "format": FORMAT,
        "row_length": length,
        "token_bytes": tokenizer.token_bytes,
        "pad_id": tokenizer.end_id,
        "end_id": tokenizer.end_id,
        "vocabulary": tokenizer.size,
        "splits": {split: writer.close() for split, writer in writers.items()},
        "data_format": "texts",
        "records": asdict(texts.tally),
        "made_from": key,
        "files": [file.name for file in texts.files],
    }
    (folder / PROMPTS).write_text(json.dumps(prompts))
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def first_words(text: str) -> str:
    """Whole ones, as far as there are spaces."""
    start = text.strip()[:PROMPT_CHARS]
    return start.rpartition(" ")[0] or start


class RowStream:
    """Give it texts, get rows back as they fill up, in the order of the texts."""

    def __init__(self, row_length: int) -> None:
        self.row_length = row_length
        self.row: list[tuple[list[int], list[int]]] = []
        self.used = 0

    def add(self, tokens: list[int]) -> Iterator[list[tuple[list[int], list[int]]]]:
        start = 0
        while True:
            piece = tokens[start : start + self.row_length - self.used]
            if len(piece) > 1:  # one token alone predicts nothing
                self.row.append((piece, [1] * len(piece)))
                self.used += len(piece)
                start += len(piece) - 1
            if start == len(tokens) - 1:
                break
            yield from self.finish()
        if self.used == self.row_length:
            yield from self.finish()

    def finish(self) -> Iterator[list[tuple[list[int], list[int]]]]:
        if self.row:
            yield self.row
        self.row, self.used = [], 0
