"""`make test` ends with one list of what was not run, and why."""

import os
from pathlib import Path

from tests.support import ROOT, pace, pytest_alone


def test_what_the_parts_have_skipped_is_one_list(tmp_path: Path) -> None:
    source = (
        "import pytest\n\n"
        "@pytest.mark.parametrize('n', range(2))\n"
        "def test_a(n):\n    pytest.skip('NOT RUN: no card')\n\n"
        "@pytest.mark.skipif(True, reason='two\\nlines')\n"
        "def test_b(): pass\n"
    )
    kept = {"MOTLEY_NOT_RUN": str(tmp_path / "kept")}
    (tmp_path / "kept").write_text("2\tNOT RUN: no card\n1\ttwo lines\n")  # of another part
    pytest_alone.run(tmp_path, source, **kept).check_returncode()
    said = pace.run("tests/run.sh", "not-run", cwd=ROOT, env=os.environ | kept)
    title, *lines = said.stdout.splitlines()
    assert title == "== not run"
    assert lines[:2] == ["  2 tests: two lines", "  4 tests: NOT RUN: no card"]
    where = [line.rpartition(": ")[2] for line in lines[2:]]
    assert where == ["make test-gpu, on a machine with one", "make test-long"]


def test_the_units_are_run_without_what_is_long() -> None:
    env = os.environ | {"PYTEST_ADDOPTS": "--collect-only --ignore-glob=*/test_[!n]*.py"}
    said = pace.run("tests/run.sh", "unit", cwd=ROOT, env=env)
    assert "[some]" in said.stdout and "[many]" not in said.stdout, said.stdout
