"""The hash of a base model or an adapter on disk, without torch. Files are large and seldom change: their hashes are
remembered."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from train.cache import cache_dir
from train.files import file_hash, write_atomic

WEIGHTS = (".safetensors", ".gguf")


def base_hash(folder: Path) -> str:
    """One hash over the base model's weights and config."""
    return folder_hash(folder, [p.name for p in folder.iterdir() if p.suffix in WEIGHTS or p.name == "config.json"])


def folder_hash(folder: Path, names: Iterable[str]) -> str:
    """One hash over these files. A file's hash is remembered until the file changes."""
    memory = _Remembered(cache_dir() / "hashes.json")
    files = sorted(folder / name for name in names)
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
            self.known[key] = file_hash(path)
            self.changed = True
        return self.known[key]

    def save(self) -> None:
        if self.changed:
            write_atomic(self.file, json.dumps(self.known, indent=1).encode())
