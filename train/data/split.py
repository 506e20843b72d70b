"""Which records are held out."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from train.data.convert_record import Example, JsonObject


def split_of(example: Example, eval_fraction: float) -> str:
    """The split of a record by what is trained of it, without its number or date: it stays on its side when others come
    or go, and so do its copies."""
    return "eval" if draw(content_of(example)) < eval_fraction else "train"


def content_of(example: Example) -> JsonObject:
    """One question with its answer as the plainest record of it, a text as in texts.py."""
    if not example.messages:
        return {"text": example.text}
    if [sorted(turn) for turn in example.messages] == [["content", "role"]] * 2 and not example.tools:
        asked, answered = (turn["content"] for turn in example.messages)
        return {"prompt": asked, "completion": answered}
    return {"messages": example.messages, "tools": example.tools}


def draw(record: Any) -> float:
    """A number from 0 to below 1 that follows from the record alone."""
    content = json.dumps(record, sort_keys=True, default=str).encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest()) / 2**64
