"""The data set that Motley brings along: made once, in the cache, by a script of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from train.cache import build_once, cache_dir


def embedded_dataset(recipe: str) -> Path:
    """The data as a file. Docstrings differ between Pythons, so the version is part of its place."""
    assert recipe == "stdlib_qa"
    version = ".".join(map(str, sys.version_info[:3]))

    def build(folder: Path) -> None:
        script = Path(__file__).with_name("stdlib_qa.py")
        subprocess.run([sys.executable, "-I", "-S", script, folder / "stdlib-qa.jsonl"], check=True)

    return build_once(cache_dir() / "datasets" / f"stdlib-qa-{version}", build) / "stdlib-qa.jsonl"
