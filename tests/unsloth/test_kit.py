"""Lines of `make test-gpu` that want unsloth and that a CPU can measure (the others: tests/train/test_gpu_kit.py)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.lines import LINES
from tests.support import ROOT

ALWAYS = "exact-unsloth-16bit"
OTHERS = ["names", "exact-unsloth-4bit"]


def test_these_are_all() -> None:
    names = {name for name, line in LINES.items() if "unsloth" in line.needs and not line.simulated}
    assert names == {ALWAYS, *OTHERS}


@pytest.mark.parametrize("names", [[ALWAYS], pytest.param(OTHERS, marks=pytest.mark.long)], ids=",".join)
def test_lines_that_want_unsloth_pass(names: list[str], tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.gpu", "--device", "cpu", "--results", str(tmp_path), "--lines"]
    done = subprocess.run(
        [*command, ",".join(names)],
        cwd=ROOT,
        env=os.environ | {"UNSLOTH_FORCE_CPU": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=1000,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line.split()[:2] for line in done.stdout.splitlines()]
    assert [words[1] for words in told if words[:1] == ["passed"]] == names
