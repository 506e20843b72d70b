"""The last checkpoint of a worker that leaves: first into main memory, so that its GPU is free within seconds, then by
the agent to the disk, for as long as that takes. Standard library only.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from pathlib import Path

from train.files import whole_folder, write_manifest

MEMORY = Path("/dev/shm")  # noqa: S108  a folder of our own in it, closed to others
VARIABLE = "MOTLEY_STAGE"
SPARE = 1.2


def room_for(size_bytes: int) -> Path | None:
    """The folder where a worker may write, if its agent has opened a stage and memory is plenty; else None."""
    folder = Path(os.environ.get(VARIABLE, ""))
    if not os.environ.get(VARIABLE) or not folder.is_dir():
        return None
    return folder if _fits(folder, size_bytes) else None


def _fits(folder: Path, size_bytes: float) -> bool:
    return shutil.disk_usage(folder).free > SPARE * size_bytes


class Staging:
    """The agent's side: what it finds there, also of an agent that was killed, is kept under `root`."""

    def __init__(self, root: Path, node: str, memory: Path = MEMORY) -> None:
        self.root = root
        name = hashlib.sha256(f"{root.absolute()} {node}".encode()).hexdigest()[:16]
        self.folder = memory / f"motley-{name}"
        self.thread: threading.Thread | None = None

    def open(self) -> str:
        """The folder for the workers, or nothing where it cannot be had."""
        with contextlib.suppress(OSError):
            self.folder.mkdir(mode=0o700, exist_ok=True)
            if self.folder.stat().st_uid == os.getuid() and not self.folder.is_symlink():
                return str(self.folder)
        return ""

    def has_room(self, size_bytes: float) -> bool:
        """Whether its workers will save there, by the rule that they go by."""
        return bool(self.open()) and _fits(self.folder, size_bytes)

    def is_kept(self) -> bool:
        """Whether nothing waits there any more; what does is being written to the disk."""
        if self.thread is not None:
            if self.thread.is_alive():
                return False
            self.thread = None
        if not self._found():
            return True
        self.thread = threading.Thread(target=self._keep, name="stage")
        self.thread.start()
        return False

    def close(self) -> None:
        if self.thread is not None:
            self.thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _found(self) -> list[Path]:
        return sorted(self.folder.glob("step-*")) if self.open() else []

    def _keep(self) -> None:
        for staged in self._found():
            try:
                with whole_folder(self.root / staged.name) as draft:
                    shutil.copytree(staged, draft, dirs_exist_ok=True)
                    write_manifest(draft, of=staged)
            except OSError as error:
                print(f"the checkpoint {staged.name} could not be kept: {error}", flush=True)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
