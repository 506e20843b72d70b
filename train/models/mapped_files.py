"""The tensors of a model's safetensors files, mapped into memory: each costs memory from when it is looked at until it
is dropped. What stays in the page cache afterwards is the system's to give away.
"""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path

import torch
from torch import Tensor

from train.errors import BadInput
from train.plan.model import weight_files
from train.plan.model.weight_files import Header

DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
    "I64": torch.int64, "I32": torch.int32, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip
PAGE = mmap.ALLOCATIONGRANULARITY


class MappedFile:
    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)  # of what is read-only torch would warn
        length = int.from_bytes(self.map[:8], "little")
        self.header: Header = json.loads(self.map[8 : 8 + length])
        self.header.pop("__metadata__", None)
        self.start = 8 + length

    def tensor(self, name: str) -> Tensor:
        about = self.header[name]
        shape, dtype = about["shape"], DTYPES[about["dtype"]]
        if not math.prod(shape):
            return torch.empty(shape, dtype=dtype)
        first = self.start + about["data_offsets"][0]
        return torch.frombuffer(self.map, dtype=dtype, count=math.prod(shape), offset=first).reshape(shape)

    def advise(self, name: str, advice: int) -> None:
        first, end = (self.start + offset for offset in self.header[name]["data_offsets"])
        first -= first % PAGE
        if end > first:
            self.map.madvise(advice, first, end - first)


class MappedFiles:
    """The mapped files of a model's folder, by the names of the tensors."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.files: dict[str, MappedFile] = {}
        for path in weight_files.files(Path(folder)):
            file = MappedFile(path)
            self.files |= dict.fromkeys(file.header, file)

    def below(self, prefix: str) -> dict[str, Tensor]:
        """All tensors whose names begin so, by the rest of their names."""
        names = self._names(prefix)
        for name in names:
            self.files[name].advise(name, mmap.MADV_WILLNEED)
        return {name.removeprefix(prefix): self.files[name].tensor(name) for name in names}

    def tensor(self, name: str) -> Tensor:
        return self.files[name].tensor(name)

    def drop(self, prefix: str) -> None:
        for name in self._names(prefix):
            self.files[name].advise(name, mmap.MADV_DONTNEED)

    def _names(self, prefix: str) -> list[str]:
        names = [name for name in self.files if name.startswith(prefix)]
        if not names:
            raise BadInput(
                f"weights: the files name no tensor '{prefix}…', so it cannot be streamed",
                f"folder: {self.folder}",
                "use weights: gpu",
            )
        return names
