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
from collections.abc import Iterator, Mapping
from pathlib import Path

from train.cache import build_once
from train.data.index import Index
from train.data.prepare import report, rows_folder
from train.data.read_records import Say, require_bytes
from train.data.rows import FORMAT, RowWriter
from train.data.run_data import data_hash, dataset_files
from train.data.texts import Texts, held_out
from train.plan.settings.read_settings import PretrainConfig
from train.recipes.pretrain.new_tokenizer import load_or_make, tokenizer_hash

TOKENIZER, PROMPTS = "tokenizer", "prompts.json"
"""What lies beside the rows: the tokenizer that made them, and the first words of some texts that are held out."""
PROMPT_CHARS, PROMPT_COUNT = 24, 3
KEY_SETTINGS = ("vocab_size", "max_seq_length", "eval_fraction")


def prepare(config: PretrainConfig, say: Say, *, out: str | None = None, date: str = "") -> Path:
    """The folder of rows with its tokenizer; made only if it is not there yet. No template writes a `date` here."""
    data = config.data()
    say(f"data      {data.reason}")
    files = dataset_files(data)
    require_bytes(files)
    key = {
        "format": FORMAT,
        "data": [*map(data_hash, files)],
        "tokenizer": tokenizer_hash(config.tokenizer),
        "settings": {name: getattr(config, name) for name in KEY_SETTINGS} | {"format": config.format},
    }
    folder = rows_folder(data.name, key, out)
    known = folder.exists()
    texts = Texts(files, config, say)
    build_once(folder, lambda unfinished: build(unfinished, config, texts, key))
    report(folder, known, say)
    return folder


def build(folder: Path, config: PretrainConfig, texts: Texts, key: Mapping[str, object]) -> None:
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
    index = Index(
        format=FORMAT,
        row_length=length,
        token_bytes=tokenizer.token_bytes,
        pad_id=tokenizer.end_id,
        end_id=tokenizer.end_id,
        vocabulary=tokenizer.size,
        splits={split: writer.close() for split, writer in writers.items()},
        data_format="texts",
        records=texts.tally.as_records(),
        made_from=key,
        files=[file.name for file in texts.files],
    )
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
