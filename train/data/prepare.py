"""`python -m train prepare`: a data set becomes packed rows, once.

    python -m train prepare --dataset stdlib-qa --model smollm2-135m
    python -m train prepare --dataset my.jsonl --model llama2-7b --max-seq-length 2048 --out data/processed/mine

The same data, model and settings give the same bytes; a folder that is already there is used again. Formats and what is
trained on are described in docs/datasets.md.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from train.cache import build_once, home_dir
from train.data.chat import Chat, encode, load_chat
from train.data.formats import FORMATS, BadRecord, Example
from train.data.packing import Packer, Sample
from train.data.reader import Reader, Say, Tally, batches
from train.data.rows import FORMAT, RowWriter
from train.errors import BadInput
from train.models.locate import model_location
from train.plan.catalogue import Dataset, Model, resolve_dataset, resolve_model
from train.plan.names import as_name

QUESTIONS = 64
TOKENIZER = ("tokenizer*", "*.jinja", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt")
KEY_SETTINGS = ("max_seq_length", "pack", "train_on", "eval_fraction", "format")


@dataclass(frozen=True, kw_only=True, slots=True)
class PrepareSettings:
    dataset: str
    model: str
    out: str | None = None
    max_seq_length: int = 512
    pack: bool = True
    train_on: str = "answers"
    eval_fraction: float = 0.05
    format: str = "auto"
    max_bad: float = 0.01
    """Below 1 the share of all records, otherwise how many; the first few, which are named, are always allowed."""
    date: str = ""
    """What templates write as today's."""

    def __post_init__(self) -> None:
        if self.max_seq_length < 8:
            raise BadInput(f"max_seq_length: {self.max_seq_length} tokens hold no sample", fix="512 is a usual length")
        if not 0 <= self.eval_fraction < 1:
            raise BadInput(f"eval_fraction: {self.eval_fraction} is not between 0 and 1", fix="0.05 holds 5 % back")
        if self.train_on not in ("answers", "all"):
            raise BadInput(f"train_on: '{self.train_on}' is neither 'answers' nor 'all'")
        if self.format not in ("auto", *FORMATS):
            raise BadInput(f"format: '{self.format}' is unknown", fix=f"choose one of: auto {' '.join(FORMATS)}")
        if self.max_bad < 0:
            raise BadInput(f"max_bad: {self.max_bad:g} is below 0", fix="0.01 allows 1 % of the records, 20 allows 20")
        if self.date:
            try:
                datetime.date.fromisoformat(self.date)
            except ValueError:
                raise BadInput(f"date: '{self.date}' is no day", fix="write it as 2026-01-31") from None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", required=True, help="catalogue name, hub id, or file")
    parser.add_argument("--model", required=True, help="its tokenizer and chat template are used")
    parser.add_argument("--out", help="folder to write (default: under data/processed of the cluster's home)")
    parser.add_argument("--max-seq-length", type=int, default=512, help="tokens of a row (default 512)")
    parser.add_argument("--no-pack", dest="pack", action="store_false", help="one sample per row")
    parser.add_argument("--train-on", default="answers", help="answers (default) or all: which tokens are targets")
    parser.add_argument("--eval-fraction", type=float, default=0.05, help="part held out (default 0.05)")
    parser.add_argument("--format", default="auto", help=f"auto (default) or one of: {' '.join(FORMATS)}")
    parser.add_argument(
        "--max-bad", type=float, default=0.01, help="bad records allowed: a share below 1, or a number (default 0.01)"
    )
    parser.add_argument("--date", default="", help="for templates that write today's date (default: today)")


def main(args: argparse.Namespace) -> int:
    names = PrepareSettings.__slots__
    folder = prepare(
        PrepareSettings(**{name: getattr(args, name) for name in names}),
        say=lambda text: print(text, file=sys.stderr if args.json else sys.stdout),
    )
    if args.json:
        print(json.dumps({"ok": True, "folder": str(folder), **json.loads((folder / "index.json").read_text())}))
    return 0


def prepare(settings: PrepareSettings, say: Say = print) -> Path:
    """The folder of packed rows; made only if it is not there yet."""
    data, model = resolve_dataset(settings.dataset), resolve_model(settings.model)
    say(f"data      {data.reason}")
    say(f"model     {model.reason}")
    _warn_of_length(settings, model, say)
    files = dataset_files(data)
    if not any(file.stat().st_size for file in files):
        raise BadInput("the data set is empty", f"file: {files[0]}")
    hashes, chosen = [_hash(file) for file in files], {name: getattr(settings, name) for name in KEY_SETTINGS}
    request = _request_hash(model, [FORMAT, hashes, chosen])
    if not settings.out and (there := _remembered(request)):
        _report(there, True, say)
        return there
    chat = load_chat(model, settings.date)
    say(f"template  {chat.reason}")
    key = {"format": FORMAT, "data": hashes, "tokenizer": chat.hash(), "settings": chosen}
    name = f"{as_name(data.name)}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]}"
    folder = Path(settings.out).expanduser() if settings.out else home_dir() / "data" / "processed" / name
    if folder.exists() and not _holds(folder, key):
        raise BadInput(
            "the folder for the rows exists, and holds something else",
            f"folder: {folder}",
            "name another with --out, or remove it",
        )
    known = folder.exists()
    reader = Reader(
        files, say, format_name=settings.format, eval_fraction=settings.eval_fraction, max_bad=settings.max_bad
    )
    facts = {"made_from": key, "model": model.name, "files": [file.name for file in files]}
    build_once(folder, lambda unfinished: _build(unfinished, settings, reader, chat, facts))
    if not settings.out:
        _remember(request, folder.name)
    _report(folder, known, say)
    return folder


# What was requested before is found again without loading a tokenizer, which takes seconds.


def _request_hash(model: Model, key: list[Any]) -> str:
    """By the tokenizer's files; empty where they are not here."""
    folder = Path(model_location(model)) if model.folder or model.embedded else None
    if folder is None:
        return ""
    tokenizer = [(path.name, _hash(path)) for name in TOKENIZER for path in sorted(folder.glob(name))]
    return hashlib.sha256(json.dumps([key, tokenizer]).encode()).hexdigest()


def _remembered(request: str) -> Path | None:
    try:
        folder = home_dir() / "data" / "processed" / str(json.loads(_memory().read_text())[request])
    except (OSError, ValueError, KeyError):
        return None
    return folder if (folder / "index.json").is_file() else None


def _remember(request: str, name: str) -> None:
    try:
        known = dict(json.loads(_memory().read_text()))
    except (OSError, ValueError):
        known = {}
    if request and known.get(request) != name:
        new = _memory().with_suffix(".new")
        new.write_text(json.dumps(known | {request: name}))
        new.replace(_memory())


def _memory() -> Path:
    return home_dir() / "data" / "processed" / ".asked.json"


def dataset_files(data: Dataset) -> list[Path]:
    if data.embedded:
        from train.data.embedded import embedded_dataset

        return [embedded_dataset(data.embedded)]
    if data.hub:
        from train.hub import hub_dataset

        return hub_dataset(data.hub)
    if data.files:
        return list(data.files)
    assert data.file
    return [data.file]


def _build(folder: Path, settings: PrepareSettings, reader: Reader, chat: Chat, facts: dict[str, Any]) -> None:
    length = settings.max_seq_length
    writers = {split: RowWriter(folder / split, length, chat.token_bytes) for split in ("train", "eval")}
    packers = {split: Packer(length, settings.pack) for split in writers}
    with Questions(folder / "questions.jsonl") as questions:
        for example, split, encoded in encoded_examples(reader, chat, settings.train_on == "answers"):
            if split == "eval":
                questions.keep(example)
            for sample in fitted(encoded, length, bool(example.messages), reader.tally):
                for row in packers[split].add(sample):
                    writers[split].add(row)
    for split, packer in packers.items():
        for row in packer.finish():
            writers[split].add(row)
    splits = {split: writer.close() for split, writer in writers.items()}
    _require_rows(splits, settings, reader)
    index = {
        "format": FORMAT,
        "row_length": length,
        "token_bytes": chat.token_bytes,
        "pad_id": chat.pad_id,
        "splits": splits,
        "data_format": reader.format,
        "chat_template": chat.template,
        **({"date": chat.date} if chat.dated else {}),
        "records": asdict(reader.tally),
        **facts,
    }
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


class Questions:
    """The first conversations that are held out, as they were asked: `eval` asks them again."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")
        self.room = QUESTIONS

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def keep(self, example: Example) -> None:
        if example.messages and not example.tools and self.room:
            self.room -= 1
            self.file.write(json.dumps(list(example.messages)) + "\n")


def encoded_examples(reader: Reader, chat: Chat, answers_only: bool) -> Iterator[tuple[Example, str, Sample]]:
    for batch in batches(reader.examples()):
        for read, sample in zip(batch, encode(chat, [read.example for read in batch], answers_only), strict=True):
            if isinstance(sample, BadRecord):
                reader.bad(read.where, str(sample))
            else:
                yield read.example, read.split, sample


def fitted(sample: Sample, row_length: int, is_chat: bool, tally: Tally) -> Iterator[Sample]:
    """A text continues in the next row; a conversation is cut, and skipped where none of its answer remains."""
    tokens, trained = sample
    tally.longest = max(tally.longest, len(tokens))
    if is_chat:
        tally.truncated += len(tokens) > row_length
        tokens, trained = tokens[:row_length], trained[:row_length]
    for start in range(0, len(tokens), row_length):
        piece = tokens[start : start + row_length], trained[start : start + row_length]
        if any(piece[1][1:]):  # nothing predicts a first token
            yield piece
        elif is_chat:
            tally.emptied += 1


def _require_rows(splits: dict[str, Any], settings: PrepareSettings, reader: Reader) -> None:
    if splits["train"]["targets"]:
        return
    tally, where = reader.tally, f"file: {reader.sources[0].path}"
    if tally.emptied:
        raise BadInput(
            f"of {tally.emptied} records, none has any of its answer within {settings.max_seq_length} tokens",
            where,
            f"the longest has {tally.longest} tokens: --max-seq-length {tally.longest}",
        )
    if splits["eval"]["rows"]:
        raise BadInput("all records are held out for evaluation", where, "use a smaller --eval-fraction")
    problem = f": {tally.first_bad[0]}" if tally.first_bad else ""
    raise BadInput(f"the data set has no usable record{problem}", where, "docs/datasets.md shows what is known")


def _warn_of_length(settings: PrepareSettings, model: Model, say: Say) -> None:
    if model.facts and settings.max_seq_length > model.facts.positions:
        say(f"careful   {model.name} was made for {model.facts.positions} tokens, rows will have more")


def _holds(folder: Path, key: Any) -> bool:
    try:
        return bool(json.loads((folder / "index.json").read_text())["made_from"] == key)
    except (OSError, ValueError, KeyError):
        return False


def _report(folder: Path, known: bool, say: Say) -> None:
    index = json.loads((folder / "index.json").read_text())
    tally, train, held_out = index["records"], index["splits"]["train"], index["splits"]["eval"]
    lost = f", {tally['bad']} bad, {tally['truncated']} cut, {tally['emptied']} without answer after the cut"
    say(f"records   {tally['records']}{lost if tally['bad'] + tally['truncated'] else ''}")
    fill = train["tokens"] / (train["rows"] * index["row_length"])
    say(
        f"rows      {train['rows']} of {index['row_length']} tokens, {fill:.0%} full, "
        f"{train['targets'] / train['tokens']:.0%} of the tokens trained on; {held_out['rows']} rows held out"
    )
    say(f"folder    {folder}{' (was there already)' if known else ''}")


def _hash(file: Path) -> str:
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
