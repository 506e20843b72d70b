"""What `make test` answers: tests/run.sh in a tree of its own, whose programs do nothing but succeed or fail."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support import ROOT, pace, stand_ins

STAND_INS = (
    *(f".venv/bin/{name}" for name in ("python", "ruff", "mypy", "shellcheck", "ansible-lint")),
    *(f"cache/envs/{name}/bin/python" for name in ("train", "unsloth")),
    *("bin/git", "bin/chromium", "requirements/make_env.sh"),
)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in STAND_INS:
        stand_in(tmp_path / name, "exit 0")
    (tmp_path / "tests").mkdir()
    shutil.copy(ROOT / "tests/run.sh", tmp_path / "tests/run.sh")
    return tmp_path


def stand_in(program: Path, does: str) -> None:
    stand_ins.program(program, f'#!/bin/sh\necho "$0 $*" >> "$TOLD"\n{does}\n')


def runs(tree: Path) -> subprocess.CompletedProcess[str]:
    env = os.environ | {"PATH": f"{tree}/bin:{os.environ['PATH']}", "MOTLEY_CACHE": f"{tree}/cache"}
    env |= {"TOLD": f"{tree}/told", "TMPDIR": str(tree)}
    return subprocess.run(["tests/run.sh", "all"], cwd=tree, env=env, capture_output=True, text=True, check=False)


def test_where_all_is_well_it_ends_with_0_and_leaves_no_file(tree: Path) -> None:
    done = pace.went_well(runs(tree))
    assert done.stdout.splitlines()[-3] == "== not run"
    assert not list(tree.glob("tmp.*"))
    told = (tree / "told").read_text()
    for part in ("envs/train/bin/python -m pytest", "envs/unsloth/bin/python -m pytest", "-m alone and not long"):
        assert part in told, told


@pytest.mark.parametrize(
    ("program", "fails"),
    [
        (".venv/bin/ansible-lint", "exit 1"),
        (".venv/bin/mypy", "exit 1"),
        ("cache/envs/train/bin/python", "exit 1"),
        (".venv/bin/python", 'case "$*" in *"-m alone"*) exit 1 ;; esac'),
        (".venv/bin/python", 'case "$*" in *"not alone"*) exit 1 ;; esac'),
    ],
)
def test_where_one_part_fails_it_says_so_at_its_end(tree: Path, program: str, fails: str) -> None:
    stand_in(tree / program, fails)
    done = runs(tree)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "== not run" in done.stdout and not list(tree.glob("tmp.*"))


def test_what_cannot_be_fetched_is_tried_again_where_it_is_needed(tree: Path) -> None:
    once = f'[ -e "{tree}/tried" ] || {{ touch "{tree}/tried"; exit 1; }}'
    stand_in(tree / "requirements/make_env.sh", once)
    done = runs(tree)
    assert done.returncode == 0 and "it is tried again where it is needed" in done.stdout, done.stdout + done.stderr
