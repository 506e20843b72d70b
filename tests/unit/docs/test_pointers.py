"""A file that a docstring, a comment or a page points to is there: names move, and what points to them stays behind."""

from __future__ import annotations

import json
import re
import subprocess

import pytest

from tests.support import ROOT

FOLDERS = ("train", "console", "plugins", "lab", "docs/inside", "CONTRIBUTING.md")
FILE = re.compile(r"(?<![\w./*<{-])((?:\w+/)+\w+\.py)\b")
NOT_OURS = ("numpy/version.py", "torch/version.py", "code/train/measure/compute_together.py")
"""Of packages, and where a node has ours."""


def tracked(*folders: str) -> list[str]:
    command = ["git", "ls-files", "--", *folders]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def stale(text: str, files: list[str]) -> list[str]:
    """The files that it names with a folder, as far as none of `files` ends so."""
    named = {found for found in FILE.findall(text) if found not in NOT_OURS and "NAME" not in found}
    return sorted(name for name in named if not any(file == name or file.endswith(f"/{name}") for file in files))


def test_one_that_has_moved_is_found() -> None:
    assert stale("see plan/old.py and train/plan/new.py, not mine.py", ["train/plan/new.py"]) == ["plan/old.py"]


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_pointed_to_is_there(folder: str) -> None:
    files = tracked()
    texts = [
        ROOT / name for name in tracked(folder) if name.endswith((".py", ".md")) and not (ROOT / name).is_symlink()
    ]
    assert {str(file.relative_to(ROOT)): found for file in texts if (found := stale(file.read_text(), files))} == {}


def test_a_random_fault_stands_in_a_file_that_is_there() -> None:
    """Otherwise it is passed over as one whose line is gone."""
    kept = json.loads((ROOT / "docs/benchmarks/mutations.json").read_text())["mutations"]
    assert [fault["file"] for fault in kept if not (ROOT / fault["file"]).is_file()] == []
