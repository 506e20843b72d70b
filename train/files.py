"""Writing files so that a power cut leaves either the old or the new one, never half of it."""

import errno
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a disk without room answers."""


def write_atomic(path: Path, data: bytes, *, mode: int | None = None, owner: tuple[int, int] | None = None) -> None:
    """Writes a file atomically. With a mode given nobody else can open it at any moment; else the umask decides."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600)
        with os.fdopen(handle, "wb") as file:
            if owner is not None:
                os.fchown(handle, *owner)
            if mode is not None:
                os.fchmod(handle, mode)
            file.write(data)
            file.flush()
            os.fsync(handle)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_file(path.parent)


@contextmanager
def whole_folder(target: Path) -> Iterator[Path]:
    """A folder that takes its name, and the place of an older one, when all of it is on the disk, or not at all."""
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        yield draft
        for path in (*draft.rglob("*"), draft):
            sync_file(path)
        shutil.rmtree(target, ignore_errors=True)
        draft.rename(target)
        sync_file(target.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def set_aside(folder: Path) -> None:
    """Under a name that says when."""
    if folder.is_dir():
        folder.rename(folder.with_name(f"{folder.name}.before-{time.strftime('%Y%m%d-%H%M%S')}"))


def file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_manifest(folder: Path, of: Path | None = None) -> None:
    """The hash of each file, as it is in `of` where that is what the folder was copied from."""
    files = [path for path in sorted((of or folder).iterdir()) if path.name != "manifest.json"]
    hashes = {path.name: file_hash(path) for path in files}
    (folder / "manifest.json").write_text(json.dumps(hashes, indent=1))


class SizeAndHash(TypedDict):
    """What a list of files records of each."""

    size: int
    sha256: str


def size_and_hash(path: Path) -> SizeAndHash:
    return {"size": path.stat().st_size, "sha256": file_hash(path)}


def sync_file(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
