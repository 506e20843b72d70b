"""`python -m train versions`: every version of this node that must agree with the others', within a second.

It reads package metadata and files only: importing torch alone would take longer, and may fail on the very node whose
versions are wanted. What is not there is null.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from typing import Any

from train import nvidia_driver
from train.cache import cache_dir
from train.data.rows import read_index
from train.package import package_hash
from train.plan.model.catalogue import resolve_model

PACKAGES = ("torch", "transformers", "tokenizers", "peft", "accelerate", "safetensors", "huggingface_hub", "numpy")
GPU_PACKAGES = ("triton", "bitsandbytes", "unsloth", "unsloth_zoo")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="also the hash of this model's weights, where it is on this node")
    parser.add_argument("--dataset", help="also the hash of this prepared folder")


def main(args: argparse.Namespace) -> int:
    facts = collect(args.model, args.dataset)
    if args.json:
        print(json.dumps({"ok": True, **facts}))
        return 0
    for name, value in facts.items():
        print(f"{name:20} {value if value is not None else '-'}")
    return 0


def collect(model: str | None = None, dataset: str | None = None, root: Path = Path("/")) -> dict[str, Any]:
    """`root` stands for the machine's file system, so that a test can show it another machine."""
    return {
        "python": platform.python_version(),
        **{name: package(name) for name in PACKAGES + GPU_PACKAGES},
        "cuda": torch_cuda(),
        "nccl": nccl(),
        **nvidia_driver.versions(root),
        "gpus": gpus(root),
        "kernel": platform.release(),
        "os": os_name(root),
        "train": package_hash(Path(__file__).parents[1]),
        "environment": environment_lock(),
        "model": model_hash(model) if model else None,
        "data": data_hash(dataset) if dataset else None,
    }


def package(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def torch_cuda() -> str | None:
    """The CUDA that torch was built for, out of its version file."""
    try:
        text = Path(str(distribution("torch").locate_file("torch/version.py"))).read_text()
    except (PackageNotFoundError, OSError):
        return None
    found = re.search(r"^cuda\b.*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return found[1] if found else None


def nccl() -> str | None:
    return next((d.version for d in distributions() if (d.name or "").startswith("nvidia-nccl-cu")), None)


def gpus(root: Path) -> list[str]:
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    return [name for file in files if (name := _first_match(file, r"Model:\s*(.+)"))]


def os_name(root: Path) -> str | None:
    return _first_match(root / "etc/os-release", r'PRETTY_NAME="?([^"\n]+)')


def _first_match(file: Path, pattern: str) -> str | None:
    try:
        found = re.search(pattern, file.read_text())
    except OSError:
        return None
    return found[1].strip() if found else None


def environment_lock() -> str | None:
    """Which locks this environment was made from (make_env.sh leaves it)."""
    return _first_match(Path(sys.prefix) / ".motley-stamp", r"(\S+)")


def model_hash(name: str) -> str | None:
    from train.plan.model.hashes import base_hash

    model = resolve_model(name)
    folder = model.folder or cache_dir() / "models" / model.name
    return base_hash(folder)[:16] if folder.is_dir() else None


def data_hash(folder: str) -> str:
    """The hash of both parts of a prepared data set, as its index names them."""
    splits = read_index(Path(folder))["splits"]
    return hashlib.sha256(json.dumps([splits[name]["hash"] for name in sorted(splits)]).encode()).hexdigest()[:16]
