"""The files of a run's data sets, and how the model will be asked with them."""

from __future__ import annotations

import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from train.cache import build_once, cache_dir
from train.data.chat import Chat, load_chat
from train.data.records import Reader, Say, require_bytes
from train.files import file_hash
from train.plan.model import weight_files
from train.plan.model.catalogue import Dataset, Model, resolve_model
from train.plan.settings import chat_template
from train.plan.settings.config import SftConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Opened:
    """The data sets of a run that asks a model, and how it is asked."""

    data: Dataset
    model: Model
    files: list[list[Path]]
    """The files of each data set."""
    chat: Chat
    own_template: bool
    """Whether the template is not the model's own."""


def open_data(config: SftConfig, say: Say, date: str) -> Opened:
    data, model = config.data(), resolve_model(config.model)
    say(f"data      {data.reason}")
    say(f"model     {model.reason}")
    files = [dataset_files(part.data) for part in data.each]
    for some in files:
        require_bytes(some)
    if model.folder:
        weight_files.require_tokens(model.folder)
    template = chat_template.read(config.chat_template)
    chat = load_chat(model, date, template, config.system)
    say(f"template  {chat.reason}")
    return Opened(data=data, model=model, files=files, chat=chat, own_template=bool(template or config.system))


def readers_of(data: Dataset, files: list[list[Path]], say: Say, format_name: str, max_bad: float) -> list[Reader]:
    """A reader for each data set."""
    return [
        Reader(some, say, taken=part.data.taken, format_name=format_name, max_bad=max_bad)
        for part, some in zip(data.each, files, strict=True)
    ]


def hashes_of(data: Dataset, files: list[list[Path]]) -> list[Any]:
    """All that decides which records there are; of one data set as it is, the hashes of its files."""
    found: list[Any] = [[file_hash(file) for file in some] for some in files]
    taken = [part.data.taken.typed for part in data.each]
    if not data.parts and not taken[0]:
        return list(found[0])
    names = [part.data.name for part in data.each]
    return [list(one) for one in zip(names, [part.weight for part in data.each], taken, found, strict=True)]


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
