"""How many bytes of tensors are there at a time while something is computed: the same on any device."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """Of what is made inside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.known: dict[int, int] = {}
        self.now = self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        given = storages((args, kwargs))  # what comes out may be a view of it
        for key, storage in storages(out).items():
            if key not in given and key not in self.known:
                self.known[key] = storage.nbytes()
                self.now += storage.nbytes()
                weakref.finalize(storage, self.gone, key)
        self.peak = max(self.peak, self.now)
        return out

    def gone(self, key: int) -> None:
        self.now -= self.known.pop(key, 0)


def storages(values: Any) -> dict[int, Any]:
    tensors = [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]
    return {one.untyped_storage()._cdata: one.untyped_storage() for one in tensors}
