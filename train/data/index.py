"""index.json: what prepared rows say of themselves, of whatever recipe they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict


class SplitIndex(TypedDict, total=False):
    """The rows of one split, and the hash of its files."""

    rows: Required[int]
    samples: int
    tokens: int
    targets: int
    hash: Required[str]
    labels: str
    """The hash of the labels of answers."""


class ColumnIndex(TypedDict):
    """One column of a recipe's own rows."""

    shape: list[int]
    type: str


class PartIndex(TypedDict):
    """One of several data sets, with its rows in each split."""

    name: str
    weight: float
    rows: dict[str, int]
    records: int
    bad: int


class Index(TypedDict, total=False):
    format: Required[int]
    kind: str
    paired: bool
    row_length: int
    longest: int
    """Tokens of the longest prompt."""
    token_bytes: int
    pad_id: int
    end_id: int
    end_ids: list[int]
    vocabulary: int
    colours: int
    splits: Required[dict[str, SplitIndex]]
    parts: list[PartIndex]
    data_format: str
    chat_template: str
    date: str
    """What the template wrote as today's, where it writes one."""
    records: dict[str, Any]
    """What became of the records (read_records.Tally)."""
    made_from: Mapping[str, object]
    """All that decides the rows' bytes."""
    model: str
    classes: list[str]
    columns: dict[str, ColumnIndex]
    files: list[str]
    own_template: bool
    trained_on: bool
    passed_over: str
    """What lay beside the data and is not in it, in words."""
    example: str
