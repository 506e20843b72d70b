"""`python -m train versions`: every version of this node that must agree with the others', within a second.

It reads package metadata and files only: importing torch alone would take longer, and may fail on the very node whose
versions are wanted. What is not there is null.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from train.cache import cache_dir
from train.plan.model.catalogue import resolve_model
from train.versions import content_hash, first_match, of_machine, package_hash

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


def collect(model: str | None = None, dataset: str | None = None, root: Path = Path("/")) -> dict[str, object]:
    """`root` stands for the machine's file system, so that a test can show it another machine."""
    sites = [Path(folder) for folder in sys.path if folder.endswith("-packages")]
    return {
        **of_machine(sites, PACKAGES + GPU_PACKAGES, root),
        "gpus": gpus(root),
        "train": package_hash(Path(__file__).parents[1]),
        "environment": environment_lock(),
        "model": model_hash(model) if model else None,
        "data": content_hash(Path(dataset)) if dataset else None,
    }


def gpus(root: Path) -> list[str]:
    files = sorted(root.glob("proc/driver/nvidia/gpus/*/information"))
    return [name for file in files if (name := first_match(file, r"Model:\s*(.+)"))]


def environment_lock() -> str | None:
    """Which locks this environment was made from (make_env.sh leaves it)."""
    return first_match(Path(sys.prefix) / ".motley-stamp", r"(\S+)")


def model_hash(name: str) -> str | None:
    """The hash of the weights, which base_hash remembers: they are large."""
    from train.plan.model.hashes import base_hash

    model = resolve_model(name)
    folder = model.folder or cache_dir() / "models" / model.name
    return base_hash(folder)[:16] if folder.is_dir() else None
