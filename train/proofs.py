"""Proofs that all ranks train the same thing: compared at the start, after step 1 and every so often.

Silent non-synchronisation is the classic failure of home clusters: every machine trains happily, each its own model.
Here a disagreement stops the run and names the nodes; checkpoints are written only after their adapter was proven.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from torch import Tensor

from train.cache import cache_dir
from train.errors import CheckFailed
from train.files import write_atomic

WEIGHTS = (".safetensors", ".gguf")


class Disagreement(CheckFailed):
    """The ranks do not train the same thing."""


def disagreement(claims: list[tuple[str, dict[str, Any]]]) -> str:
    """What differs, and on which nodes; empty where all (node, facts) agree. The majority is taken to be right."""
    for fact in claims[0][1] if claims else ():
        values = [json.dumps(facts.get(fact), sort_keys=True) for _, facts in claims]
        usual, count = Counter(values).most_common(1)[0]
        if count < len(values):
            odd = [(node, value) for (node, _), value in zip(claims, values, strict=True) if value != usual]
            nodes = ", ".join(sorted({f"{node} ({_short(value)})" for node, value in odd}))
            return f"{fact} differs: {nodes}; the others have {_short(usual)}"
    return ""


def require_agreement(claims: list[tuple[str, dict[str, Any]]], when: str, fix: str) -> None:
    if found := disagreement(claims):
        raise Disagreement(f"the nodes do not train the same thing: {found}", f"found: {when}", fix)


def tensors_hash(named: Iterable[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        digest.update(name.encode())
        digest.update(tensor.detach().float().cpu().contiguous().numpy())
    return digest.hexdigest()


def base_hash(folder: Path) -> str:
    """One hash over the base model's weights and config. A file's hash is remembered until the file changes."""
    memory = _Remembered(cache_dir() / "hashes.json")
    files = sorted(p for p in folder.iterdir() if p.suffix in WEIGHTS or p.name == "config.json")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {memory.hash(path)}\n".encode())
    memory.save()
    return digest.hexdigest()


class _Remembered:
    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self.known: dict[str, str] = json.loads(file.read_text())
        except (FileNotFoundError, ValueError):
            self.known = {}
        self.changed = False

    def hash(self, path: Path) -> str:
        facts = path.stat()
        key = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
        if key not in self.known:
            with path.open("rb") as file:
                self.known[key] = hashlib.file_digest(file, "sha256").hexdigest()
            self.changed = True
        return self.known[key]

    def save(self) -> None:
        if self.changed:
            write_atomic(self.file, json.dumps(self.known, indent=1).encode())


def _short(value: str) -> str:
    text = value.strip('"')
    return text[:12] if len(text) == 64 else text
