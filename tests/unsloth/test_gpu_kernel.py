"""selftest's kernel without a GPU: its sum by Triton's interpreter, and its compilation for each kind of GPU."""

import os
import subprocess
import sys
from pathlib import Path

from train.plan.machines import architectures


def python(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: Triton reads its switch once."""
    known = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return subprocess.run([sys.executable, "-c", *words], env=known | env, capture_output=True, text=True, check=False)


def test_it_adds_and_leaves_what_lies_behind_alone() -> None:
    done = python("from train.measure import gpu_kernel; gpu_kernel.prove('cpu')", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr


def test_a_wrong_sum_is_an_error() -> None:
    nan = "torch.randn = lambda n, device: torch.full((n,), float('nan'))"
    done = python(
        f"import torch; {nan}; from train.measure import gpu_kernel; gpu_kernel.prove('cpu')", TRITON_INTERPRET="1"
    )
    assert "a kernel on cpu gave a wrong sum" in done.stderr


def test_triton_compiles_it_for_every_architecture_that_motley_serves(tmp_path: Path) -> None:
    served = {round(known.compute * 10) for known in architectures.KNOWN if known.served}
    assert {75, 86, 89, 120} <= served
    done = python(COMPILES, *(str(number) for number in sorted(served)), TRITON_CACHE_DIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert [int(line.split()[0]) for line in done.stdout.splitlines()] == sorted(served)


COMPILES = """
import sys, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from train.measure import gpu_kernel
for compute in map(int, sys.argv[1:]):
    types = {**dict.fromkeys(("a", "b", "out"), "*fp32"), "length": "i32", "block": "constexpr"}
    source = ASTSource(gpu_kernel.add, types, {(4,): gpu_kernel.BLOCK})
    built = triton.compile(source, target=GPUTarget("cuda", compute, 32))
    print(compute, len(built.asm["cubin"]))
"""
