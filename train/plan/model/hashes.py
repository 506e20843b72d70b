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
    memory, new = cache_dir() / "hashes.json", dict[str, str]()
    known = remembered(memory)
    digest = hashlib.sha256()
    for path in sorted(folder / name for name in names):
        facts = path.stat()
        key = f"{path.resolve()} {facts.st_size} {facts.st_mtime_ns} {facts.st_ino}"
        if key not in known:
            new[key] = file_hash(path)
        digest.update(f"{path.name} {(known | new)[key]}\n".encode())
    if new:
        write_atomic(memory, json.dumps(known | new, indent=1).encode())
    return digest.hexdigest()


def remembered(file: Path) -> dict[str, str]:
    try:
        return dict(json.loads(file.read_text()))
    except (FileNotFoundError, ValueError):
        return {}
