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
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, distributions, version
from pathlib import Path
from typing import Any

from train.cache import cache_dir
from train.data.rows import read_index
from train.plan.catalogue import resolve_model
from train.plan.hashes import package_hash

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
        **driver(root),
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


def driver(root: Path) -> dict[str, str | None]:
    """The driver as the running kernel has it, as its module lies on disk, and as programs load its library.

    After an unattended upgrade these differ until the next boot, and CUDA refuses.
    """
    loaded = _first_match(root / "proc/driver/nvidia/version", r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)")
    folders = ("usr/lib*/x86_64-linux-gnu", "usr/lib64")
    libraries = [path.name for folder in folders for path in root.glob(f"{folder}/libnvidia-ml.so.[0-9]*.*")]
    library = max(libraries, key=_numbers).removeprefix("libnvidia-ml.so.") if libraries else None
    return {
        "driver": loaded,
        "driver_on_disk": module_on_disk() if loaded or library else None,
        "driver_library": library,
    }


def _numbers(name: str) -> list[int]:
    """570.9 is older than 570.133."""
    return [int(part) for part in re.findall(r"\d+", name)]


def module_on_disk() -> str | None:
    try:
        done = subprocess.run(
            ["modinfo", "-F", "version", "nvidia"], check=False, capture_output=True, text=True, timeout=5
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


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
    from train.plan.hashes import base_hash

    model = resolve_model(name)
    folder = model.folder or cache_dir() / "models" / model.name
    return base_hash(folder)[:16] if folder.is_dir() else None


def data_hash(folder: str) -> str:
    """Of both parts of a prepared data set, as its index names them."""
    splits = read_index(Path(folder))["splits"]
    return hashlib.sha256(json.dumps([splits[name]["hash"] for name in sorted(splits)]).encode()).hexdigest()[:16]
