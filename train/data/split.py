"""Which records are held out."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def split_of(record: Any, eval_fraction: float) -> str:
    """By the record's content: it stays on its side when others come or go, and so do its copies."""
    return "eval" if draw(record) < eval_fraction else "train"


def draw(record: Any) -> float:
    """From 0 to below 1."""
    content = json.dumps(record, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) / 2**64
