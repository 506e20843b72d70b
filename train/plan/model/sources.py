"""Where a launch gets its model and its data set from: plain words, as the steps after the plan are told them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from train.plan.model.adapters import Adapter
from train.plan.model.catalogue import Dataset, Model


@dataclass(frozen=True, kw_only=True, slots=True)
class BaseModel:
    name: str
    source: str
    reason: str
    local_name: str = ""
    hub: str | None = None
    hub_4bit: str | None = None
    embedded: str | None = None
    gated: bool = False
    folder: str = ""
    """The folder of this machine that it is, where it is one."""
    folder_name: str = ""
    """The name of its folder on each node; empty where it begins with random weights."""
    comes_from: str = ""
    """folder, hub, or head, which has it in a package."""
    in_4bit: bool = False
    """Whether the hub's copy in 4 bit is meant."""

    @classmethod
    def of(cls, model: Model) -> BaseModel:
        return cls(
            name=model.name,
            source=model.source,
            reason=model.reason,
            local_name=model.local_name,
            hub=model.hub,
            hub_4bit=model.hub_4bit,
            embedded=model.embedded,
            gated=model.gated,
            folder=str(model.folder.resolve()) if model.source == "folder" and model.folder else "",
        )

    @property
    def fetched_as(self) -> str:
        return self.name if self.source == "catalogue" else str(self.hub)

    @property
    def repo(self) -> str:
        return (self.hub_4bit if self.in_4bit else self.hub) or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class DataSource:
    name: str
    reason: str = ""
    local_name: str = ""
    listed: bool = False
    hub: str | None = None
    embedded: str | None = None
    file: str = ""
    folder: str = ""
    """The folder of this machine that it is, where it is one, and below it `files`."""
    files: Sequence[str] = ()
    folder_name: str = ""
    """The name of the folder of its rows on each node: known when the head has made them."""

    @classmethod
    def of(cls, data: Dataset) -> DataSource:
        below = data.folder
        return cls(
            name=data.name,
            reason=data.reason,
            local_name=data.local_name,
            listed=data.listed,
            hub=data.hub,
            embedded=data.embedded,
            file=str(data.file.resolve()) if data.file else "",
            folder=str(below.resolve()) if below else "",
            files=[str(path.relative_to(below)) for path in data.files] if below else [],
        )

    @property
    def fetched_as(self) -> str:
        return self.name if self.listed else str(self.hub)

    @property
    def repo(self) -> str:
        return self.hub or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class RawData:
    """A data set that is brought to the head as it is."""

    dataset: Mapping[str, Any]
    """A DataSource, as words."""
    place: str
    """The folder of the head that it goes to."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterSource:
    """An adapter that the run begins with, for all nodes."""

    words: str
    """What it is, for who reads the plan."""
    folder: str
    """The folder of this machine that it lies in."""
    files: Mapping[str, Mapping[str, Any]]
    """Name → size and sha256."""
    folder_name: str
    """The name of its folder on each node."""

    @classmethod
    def of(cls, found: Adapter) -> AdapterSource:
        files = found.files
        size = sum(int(file["size"]) for file in files.values()) / 1e6
        words = f"{found.line}; {size:.1f} MB to every node that lacks them"
        return cls(words=words, folder=str(found.folder), files=files, folder_name=found.folder_name)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenizerSource:
    """Another model, of which the head gets the tokenizer alone."""

    name: str
    hub: str | None
    folder: str
    place: str
    """The folder that it goes to."""

    @property
    def repo(self) -> str:
        return self.hub or self.name
