"""The texts of a data set, and which of them are held out. Without numpy, tokenizer and torch, as the controller is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from train.data.read_records import MORE_BAD, SHOWN_BAD, Reader, Say, Tally, examples
from train.data.split import draw
from train.errors import BadInput
from train.plan.model.catalogue import TEXTS
from train.plan.settings.read_settings import PretrainConfig

LONGEST_TEXT = 64 << 20
PIECE = 16 << 10
"""Characters of a part of a file that is the whole data set: enough parts that some can be held out."""
PLAIN_TEXT = tuple(suffix for suffix in TEXTS if suffix != ".jsonl")


@dataclass(frozen=True, slots=True)
class Text:
    text: str
    where: str


class Texts:
    """All texts of a data set, again each time they are asked for; what cannot be read is named, counted, and stops it
    at a limit."""

    def __init__(self, files: list[Path], config: PretrainConfig, say: Say) -> None:
        self.files, self.config, self.say = files, config, say
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
            what = f"{file.name}: not UTF-8"
            self.unreadable.append(what)
            self._count_bad(1, [what])
            if self.first_time and self.tally.bad <= SHOWN_BAD:
                self.say(f"skipped   {what}")

    def records(self, file: Path) -> Iterator[Text]:
        """A conversation is read as the text that its turns make."""
        quiet: Say = self.say if self.first_time else lambda _: None
        reader = Reader([file], quiet, format_name=self.config.format, max_bad=self.config.max_bad)
        for found, example in reader.made(examples):
            yield Text(example.text or "\n\n".join(str(turn["content"]) for turn in example.messages), found.where)
        self._count_bad(reader.tally.bad, reader.tally.first_bad)

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
                f"convert it to UTF-8, remove it, or {MORE_BAD}",
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
