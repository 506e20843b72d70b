"""`python -m train prepare`: a data set becomes packed rows, once.

    python -m train prepare --dataset stdlib-qa --model smollm2-135m
    python -m train prepare --dataset my.jsonl --model qwen3-4b --max-seq-length 2048 --out data/processed/mine

The same data, model and settings give the same bytes; a folder that is already there is used again. Formats and what is
trained on are described in docs/datasets.md.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import importlib
import json
import os
import sys
import time
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from train.cache import build_once, home_dir
from train.data import left_out_in_words
from train.data.convert_record import BadRecord, Example
from train.data.in_threads import threads_for
from train.data.index import Index
from train.data.mix_data_sets import Parts
from train.data.packing import Packer, Sample, cut
from train.data.read_records import Asked, Reader, Say, examples
from train.data.rows import FORMAT, RowWriter, packed_rows
from train.data.run_data import OpenedData, find_data
from train.data.split import split_of
from train.data.to_tokens import Chat, encode, shown
from train.errors import BadInput
from train.files import file_hash, write_atomic
from train.layout import ROWS
from train.models.model_files import model_location
from train.plan.model.catalogue import Facts, Model, resolve_model
from train.plan.run_name import as_name
from train.plan.settings import own_recipe
from train.plan.settings.read_settings import RunConfig, SftConfig, add_settings, config_of
from train.runlog.events import person

QUESTIONS = 64
EXAMPLE = 400
"""Characters that are shown of a sample."""
TOKENIZER = ("tokenizer*", "*.jinja", "special_tokens_map.json", "added_tokens.json", "vocab*", "merges.txt")
KEY_SETTINGS = ("max_seq_length", "pack", "train_on", "eval_fraction")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dataset", default=argparse.SUPPRESS, help="catalogue name, hub id, or file")
    parser.add_argument("--model", default=argparse.SUPPRESS, help="its tokenizer and chat template are used")
    parser.add_argument("--out", help="folder to write (default: under data/processed of the cluster's home)")
    names = ("recipe", "loss", "max_seq_length", "train_on", "format", "system", "eval_fraction", "max_bad", "patience")
    add_settings(
        parser, (*names, "chat_template", "tokenizer", "vocab_size", "image_size", "rewards", "max_new_tokens")
    )
    add_settings(parser, ("tasks", "documents", "shots", "seed"))
    parser.add_argument(
        "--no-pack", dest="pack", action="store_false", default=argparse.SUPPRESS, help="one sample per row"
    )
    parser.add_argument("--passed-over", default="", help="what lay beside the data and was not brought here, in words")
    parser.add_argument("--date", default="", help="for templates that write today's date (default: today)")


def main(args: argparse.Namespace) -> int:
    out = person(args.json)
    where = {"out": args.out, "date": args.date}
    config = config_of(args)
    if "model" in config.REQUIRED and not hasattr(args, "model"):
        raise BadInput("--model is missing: its tokenizer and chat template are used", fix="name one, such as tiny")
    if not hasattr(args, "dataset") and config.recipe != "evaluate" and not own_recipe.is_file(config.recipe):
        raise BadInput("--dataset is missing", fix="a name of the catalogue, a hub id, or a file")
    if isinstance(config, SftConfig) and config.recipe != "evaluate":  # lm-eval loads torch
        _without_torch(config.model)
    began, make = time.time(), importlib.import_module(config.PREPARES).prepare
    folder: Path = make(config, lambda text: print(text, file=out), **where)
    if args.passed_over:
        left_out_in_words.note(folder, args.passed_over)
    index = json.loads((folder / "index.json").read_text())
    lost = left_out_in_words.words(index)
    for text in lost:
        print(f"careful   {text}", file=out)
    left_out_in_words.require_held_out(config, index["splits"]["eval"]["rows"])
    if args.json:
        new = (folder / "index.json").stat().st_mtime >= began
        print(json.dumps({"ok": True, "folder": str(folder), "new": new, "left_out": lost, **index}))
    return 0


def _without_torch(model: str) -> None:
    """A tokenizer needs none of it: transformers then does as on a machine that has no torch, in a third of the memory
    and of the time."""
    model_location(resolve_model(model))  # what torch still makes of an embedded one
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]


def prepare(config: SftConfig, say: Say, *, out: str | None = None, date: str = "") -> Path:
    """The folder of packed rows; made only if it is not there yet. `date` is what templates write as today's."""
    _check(config, date)
    data = find_data(config, say)
    _warn_of_length(config, data.model, say)
    chosen = {name: getattr(config, name) for name in KEY_SETTINGS}
    chosen |= {"format": config.format, "held_out_by": "what is trained", "texts_begin": "as the tokenizer's"}
    own_texts = [text for text in (data.template, config.system and f"system: {config.system}") if text]
    request = _request_hash(data.model, [FORMAT, data.hashes, chosen, *own_texts])
    if not out and (made_before := _remembered(request)):
        report(made_before, True, say)
        return made_before
    opened = data.opened(say, date)
    made_from = opened.made_from(chosen)
    folder = rows_folder(data.dataset.name, made_from, out)
    was_there = folder.exists()
    readers = data.readers(say, config.format)
    build_once(folder, lambda unfinished: _build(unfinished, config, opened, readers, made_from))
    if not out:
        _remember(request, folder.name)
    report(folder, was_there, say)
    return folder


def _check(config: RunConfig, date: str) -> None:
    if config.max_seq_length < 8:
        raise BadInput(f"max_seq_length: {config.max_seq_length} tokens hold no sample", fix="512 is a usual length")
    try:
        datetime.date.fromisoformat(date or "2026-01-31")
    except ValueError:
        raise BadInput(f"date: '{date}' is no day", fix="write it as 2026-01-31") from None


# What was requested before is found again without loading a tokenizer, which takes seconds.


def _request_hash(model: Model, key: list[object]) -> str:
    """The hash of a request, by the tokenizer's files; empty where they are not here."""
    folder = Path(model_location(model)) if model.folder or model.embedded else None
    if folder is None:
        return ""
    tokenizer = [(path.name, file_hash(path)) for name in TOKENIZER for path in sorted(folder.glob(name))]
    return hashlib.sha256(json.dumps([key, tokenizer]).encode()).hexdigest()


def _remembered(request: str) -> Path | None:
    try:
        folder = home_dir() / ROWS / str(json.loads(_memory().read_text())[request])
    except (OSError, ValueError, KeyError):
        return None
    return folder if (folder / "index.json").is_file() else None


def _remember(request: str, name: str) -> None:
    try:
        remembered = dict(json.loads(_memory().read_text()))
    except (OSError, ValueError):
        remembered = {}
    if request and remembered.get(request) != name:
        write_atomic(_memory(), json.dumps(remembered | {request: name}).encode())


def _memory() -> Path:
    return home_dir() / ROWS / ".asked.json"


def _build(
    folder: Path, config: SftConfig, opened: OpenedData, readers: list[Reader], made_from: Mapping[str, object]
) -> None:
    """The rows of one data set after another: each row is of one of them."""
    length, chat = config.max_seq_length, opened.chat
    writers = {split: RowWriter(folder / split, length, chat.token_bytes) for split in ("train", "eval")}
    parts = Parts(opened.data.dataset)
    with Questions(folder / "questions.jsonl") as questions:
        for part, reader in zip(opened.data.dataset.each, readers, strict=True):
            _write(config, reader, chat, writers, questions)
            rows = {split: writer.count["rows"] for split, writer in writers.items()}
            if part.weight and rows["train"] == parts.rows["train"]:
                _require_length(reader, config)
            parts.add(rows, reader)
    splits = {split: writer.close() for split, writer in writers.items()}
    head = Index(format=FORMAT, row_length=length, token_bytes=chat.token_bytes, pad_id=chat.pad_id, splits=splits)
    formats = ", ".join(dict.fromkeys(reader.format for reader in readers))
    index = opened.complete(head, parts, readers, made_from, formats)
    index["example"] = _example(folder, index, chat)
    (folder / "index.json").write_text(json.dumps(index, indent=1) + "\n")


def _example(folder: Path, index: Index, chat: Chat) -> str:
    """The first sample, its beginning and its end, as the model gets it."""
    rows = packed_rows(folder, index, "train")
    end = int(rows.samples[1])
    whole = shown(chat, rows.tokens[:end].tolist(), rows.trained[:end].tolist())
    return whole if len(whole) <= EXAMPLE else f"{whole[: EXAMPLE // 2]} … {whole[-EXAMPLE // 2 :]}"


def _write(config: SftConfig, reader: Reader, chat: Chat, writers: dict[str, RowWriter], questions: Questions) -> None:
    length = config.max_seq_length
    packers = {split: Packer(length, config.pack) for split in writers}
    make = partial(encoded, chat, config.train_on, config.eval_fraction)
    for record, encoded_record in reader.made(make, threads_for(reader.size)):
        if encoded_record.split == "eval" and questions.room:
            questions.keep(record.example(reader.format))
        for sample in cut(encoded_record.sample, length, reader.tally, is_chat=encoded_record.is_chat):
            for row in packers[encoded_record.split].add(sample):
                writers[encoded_record.split].add(row)
    for split, packer in packers.items():
        for row in packer.finish():
            writers[split].add(row)


class Questions:
    """The first conversations that are held out, as they were asked: `eval` asks them again."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("w", encoding="utf-8")
        self.room = QUESTIONS

    def __enter__(self) -> Questions:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def keep(self, example: Example | BadRecord) -> None:
        if isinstance(example, Example) and example.messages and not example.tools:
            self.room -= 1
            self.file.write(json.dumps(list(example.messages)) + "\n")


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record's tokens and targets, the tokens as an array, which is small."""

    split: str
    is_chat: bool
    sample: Sample


def encoded(chat: Chat, train_on: str, eval_fraction: float, asked: Asked) -> list[Encoded | BadRecord]:
    converted = examples(asked)
    good = [example for example in converted if isinstance(example, Example)]
    if train_on == "last":
        good = [replace(example, trained_turns=1) for example in good]
    samples = iter(encode(chat, good, train_on != "all"))
    results: list[Encoded | BadRecord] = []
    for example in converted:
        if isinstance(example, BadRecord):
            results.append(example)
        elif isinstance(sample := next(samples), BadRecord):
            results.append(sample)
        else:
            split, tokens = split_of(example, eval_fraction), array("I", sample[0])
            results.append(Encoded(split, bool(example.messages), (tokens, sample[1])))
    return results


def _require_length(reader: Reader, config: RunConfig) -> None:
    tally = reader.tally
    if tally.emptied:
        raise BadInput(
            f"of {tally.emptied} records, none has any of its answer within {config.max_seq_length} tokens",
            f"file: {reader.sources[0].path}",
            f"the longest has {tally.longest} tokens: --set max_seq_length={tally.longest}",
        )


def _warn_of_length(config: RunConfig, model: Model, say: Say) -> None:
    if isinstance(model.facts, Facts) and config.max_seq_length > model.facts.positions:
        say(f"careful   {model.name} was made for {model.facts.positions} tokens, rows will have more")


def rows_folder(dataset: str, key: Mapping[str, object], out: str | None) -> Path:
    """`key`: all that decides the rows' bytes."""
    name = f"{as_name(dataset)}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]}"
    folder = Path(out).expanduser() if out else home_dir() / ROWS / name
    if folder.exists() and not holds(folder, key):
        raise BadInput(
            "the folder for the rows exists, and holds something else",
            f"folder: {folder}",
            "remove it, or choose another folder",
        )
    return folder


def holds(folder: Path, key: Mapping[str, object]) -> bool:
    try:
        return bool(json.loads((folder / "index.json").read_text())["made_from"] == key)
    except (OSError, ValueError, KeyError):
        return False


def report(folder: Path, was_there: bool, say: Say) -> None:
    index = json.loads((folder / "index.json").read_text())
    tally, train, held_out = index["records"], index["splits"]["train"], index["splits"]["eval"]
    lost = f", {tally['bad']} bad, {tally['truncated']} cut, {tally['emptied']} without answer after the cut"
    say(f"records   {tally['records']}{lost if tally['bad'] + tally['truncated'] else ''}")
    fill = train["tokens"] / (train["rows"] * index["row_length"])
    say(
        f"rows      {train['rows']} of {index['row_length']} tokens, {fill:.0%} full, "
        f"{train['targets'] / train['tokens']:.0%} of the tokens trained on; {held_out['rows']} rows held out"
    )
    if index.get("example"):  # not of rows that were made before
        say(f"example   {index['example']}  (trained on: what stands in « »)")
    say(f"folder    {folder}{' (was there already)' if was_there else ''}")
