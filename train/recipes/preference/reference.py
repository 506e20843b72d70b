"""What the base says of each answer, asked once for each row: later epochs, and later runs on the same rows with the
same base, do not pay for it.

A file of two numbers a row is kept on each node, 0 where nothing is known yet: that is no answer's. All nodes
get to know what one has asked, in the step that needs it, so it does not matter who asked.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from train.layout import REFERENCES


class References:
    def __init__(self, file: Path | None, rows: int) -> None:
        """`file`: None where nothing is kept."""
        self.file = file
        self.values: NDArray[np.float64] = np.zeros((rows, 2), dtype="<f8")
        self.unwritten: set[int] = set()
        if file and file.is_file() and file.stat().st_size == self.values.nbytes:
            kept = np.fromfile(file, dtype="<f8").reshape(rows, 2)
            self.values = np.where(np.isfinite(kept), kept, 0.0)

    def lacking(self, rows: list[int]) -> list[int]:
        return [row for row in dict.fromkeys(rows) if not self.values[row].all()]

    def learn(self, rows: list[int], values: NDArray[np.float64]) -> None:
        for row, own in zip(rows, values, strict=True):
            if (self.values[row] != own).any():
                self.values[row] = own
                self.unwritten.add(row)

    def keep(self) -> None:
        """Writes what is new."""
        if self.file and self.unwritten:
            with contextlib.suppress(OSError):  # on a full disk the base is asked again
                self._write(self.file)

    def _write(self, file: Path) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            if os.fstat(handle).st_size != self.values.nbytes:
                os.ftruncate(handle, self.values.nbytes)
            for row in sorted(self.unwritten):
                os.pwrite(handle, self.values[row].tobytes(), row * self.values[row].nbytes)
            self.unwritten.clear()
        finally:
            os.close(handle)


def file_for(home: Path, key: dict[str, str]) -> Path:
    """`key`: all that decides the values."""
    name = hashlib.sha256(repr(sorted(key.items())).encode()).hexdigest()[:16]
    return home / REFERENCES / f"{name}.f8"
