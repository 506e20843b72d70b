"""The files of a run's data sets, and how the model will be asked with them."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from train.cache import build_once, cache_dir
from train.data.index import Index
from train.data.mix_data_sets import Parts, together
from train.data.read_records import Reader, Say, require_bytes
from train.data.rows import FORMAT
from train.data.to_tokens import Chat, load_chat
from train.files import file_hash
from train.plan.model import weight_files
from train.plan.model.catalogue import Dataset, Model, resolve_model
from train.plan.settings import chat_template
from train.plan.settings.read_settings import SftConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFiles:
    """The data sets of a run that asks a model, before its tokenizer is loaded, which takes seconds."""

    config: SftConfig
    dataset: Dataset
    model: Model
    files: list[list[Path]]
    """The files of each data set."""
    hashes: list[object]
    """All that decides which records there are."""
    template: str
    """A chat template of one's own; empty where it is the model's."""

    def readers(self, say: Say, format_name: str) -> list[Reader]:
        """A reader for each data set."""
        return [
            Reader(files, say, taken=part.data.taken, format_name=format_name, max_bad=self.config.max_bad)
            for part, files in zip(self.dataset.each, self.files, strict=True)
        ]

    def opened(self, say: Say, date: str) -> OpenedData:
        """`date`: what templates write as today's."""
        if self.model.folder:
            weight_files.require_tokens(self.model.folder)
        chat = load_chat(self.model, date, self.template, self.config.system)
        say(f"template  {chat.reason}")
        return OpenedData(data=self, chat=chat)


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedData:
    """The same with how the model is asked."""

    data: DataFiles
    chat: Chat

    def made_from(self, settings: Mapping[str, object]) -> dict[str, object]:
        """All that decides the rows' bytes; `settings`: those of the recipe on which they depend."""
        return {"format": FORMAT, "data": self.data.hashes, "tokenizer": self.chat.hash(), "settings": settings}

    def complete(
        self, index: Index, parts: Parts, readers: list[Reader], made_from: Mapping[str, object], data_format: str
    ) -> Index:
        """The index of rows with all that is said alike by every recipe that asks a model."""
        data = self.data
        if data.dataset.parts:
            index["parts"] = parts.made
        index["data_format"] = data_format
        index["chat_template"] = self.chat.template
        if self.chat.dated:
            index["date"] = self.chat.date
        index["records"] = together([reader.tally for reader in readers]).as_records()
        index["made_from"] = made_from
        index["model"] = data.model.name
        index["files"] = [file.name for files in data.files for file in files]
        if data.template or data.config.system:
            index["own_template"] = True
        return index


def find_data(config: SftConfig, say: Say) -> DataFiles:
    data, model = config.data(), resolve_model(config.model)
    say(f"data      {data.reason}")
    say(f"model     {model.reason}")
    files = [dataset_files(part.data) for part in data.each]
    for files_of_one in files:
        require_bytes(files_of_one)
    template = chat_template.read(config.chat_template)
    hashes = hashes_of(data, files)
    return DataFiles(config=config, dataset=data, model=model, files=files, hashes=hashes, template=template)


def hashes_of(data: Dataset, files: list[list[Path]]) -> list[object]:
    """The hashes of the files of one data set as it is; else those of each, with what is taken of it."""
    hashes = [[*map(data_hash, files_of_one)] for files_of_one in files]
    taken = [part.data.taken.typed for part in data.each]
    if not data.parts and not taken[0]:
        return list(hashes[0])
    names = [part.data.name for part in data.each]
    return [list(entry) for entry in zip(names, [part.weight for part in data.each], taken, hashes, strict=True)]


def data_hash(file: Path) -> str:
    """With its suffix, which decides how it is read."""
    return f"{file_hash(file)}{file.suffix.lower()}"


def dataset_files(data: Dataset) -> list[Path]:
    if data.embedded:
        return [embedded_dataset()]
    if data.hub:
        from train.hub_data import hub_dataset

        return hub_dataset(data.hub)
    if data.files:
        return list(data.files)
    assert data.file
    return [data.file]


def embedded_dataset() -> Path:
    """What Motley brings along, made by a script of its own. Docstrings differ between Pythons: so does its place."""

    def build(folder: Path) -> None:
        script = Path(__file__).with_name("stdlib_qa.py")
        subprocess.run([sys.executable, "-I", "-S", script, folder / "stdlib-qa.jsonl"], check=True)

    name = f"stdlib-qa-{platform.python_version()}"
    return build_once(cache_dir() / "datasets" / name, build) / "stdlib-qa.jsonl"
