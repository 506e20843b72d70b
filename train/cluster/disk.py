"""Where an agent's files are. A disk may be full or slow, and tests/sim plays one that is."""

from __future__ import annotations

from pathlib import Path

from train.files import set_aside, write_atomic
from train.runlog.events import append_whole
from train.runlog.tail import Tail


class Disk:
    def read(self, file: Path) -> str:
        return file.read_text()

    def changed_ns(self, file: Path) -> int:
        return file.stat().st_mtime_ns

    def tail(self, file: Path, last_bytes: int) -> Tail:
        return Tail(file, last_bytes=last_bytes)

    def write(self, file: Path, text: str) -> None:
        """Writes a file that survives a power cut, or the old one does; and nobody else can read it."""
        write_atomic(file, text.encode(), mode=0o600)

    def show(self, file: Path, text: str) -> None:
        """Writes a file whole too, but it is not worth an fsync."""
        draft = file.with_name(f".{file.name}.draft")
        draft.write_text(text)
        draft.replace(file)

    def append(self, file: Path, lines: str) -> None:
        append_whole(file, lines)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def set_aside(self, folder: Path) -> None:
        set_aside(folder)
