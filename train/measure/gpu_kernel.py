"""One small Triton kernel: if it gives the right sum on a GPU, then compiler, headers, driver and Triton fit together.

Needs Triton, which CPU environments lack: import it where there is a GPU. TRITON_INTERPRET=1 runs it on a CPU.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator

import triton
import triton.language as tl

from train.cache import cache_dir

BLOCK = 256


@triton.jit  # type: ignore[untyped-decorator]
def add(a: tl.tensor, b: tl.tensor, out: tl.tensor, length: tl.tensor, block: tl.constexpr) -> None:
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < length
    tl.store(out + at, tl.load(a + at, mask=inside) + tl.load(b + at, mask=inside), mask=inside)


@contextlib.contextmanager
def nothing_built() -> Iterator[None]:
    """Sets an empty cache for a while: what was built while a compiler was there proves nothing about now."""
    was = os.environ.get("TRITON_CACHE_DIR")
    cache_dir().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".triton.", dir=cache_dir()) as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["TRITON_CACHE_DIR"]
            os.environ |= {"TRITON_CACHE_DIR": was} if was else {}


def prove(device: str, length: int = 1000) -> None:
    """Compiles the kernel for this GPU and runs it there; the last block is not full."""
    import torch

    a, b = (torch.randn(length, device=device) for _ in range(2))
    out = torch.zeros(length + 1, device=device)
    with contextlib.nullcontext() if device == "cpu" else torch.cuda.device(device):
        add[(triton.cdiv(length, BLOCK),)](a, b, out, length, block=BLOCK)
    if not torch.equal(out[:length], a + b) or out[length] != 0:
        raise ValueError(f"a kernel on {device} gave a wrong sum")
