"""Hashes of what must be the same everywhere, without torch: a base model on disk, and this package's source. A model's
files are large and seldom change, so theirs are remembered."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from train.cache import cache_dir
from train.files import write_atomic

WEIGHTS = (".safetensors", ".gguf")


def base_hash(folder: Path) -> str:
    """One hash over the base model's weights and config. A file's hash is remembered until the file changes."""
    memory = _Remembered(cache_dir() / "hashes.json")
    files = sorted(p for p in folder.iterdir() if p.suffix in WEIGHTS or p.name == "config.json")
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.name} {memory.hash(path)}\n".encode())
    memory.save()
    return digest.hexdigest()


def package_files(folder: Path) -> list[Path]:
    """All that travels to the nodes."""
    return sorted(path for kind in ("*.py", "*.yml", "*.txt") for path in folder.rglob(kind))


def package_hash(folder: Path) -> str:
    """Of this package's source: nodes with different code must not train together."""
    digest = hashlib.sha256()
    for file in package_files(folder):
        digest.update(f"{file.relative_to(folder)} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()[:16]


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
