"""What the controller says when wheels cannot be fetched: the cause that pip met, and its mend."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from requirements import wheelhouse
from tests.support import small_set

PYTHON = "{}.{}".format(*sys.version_info[:2])


def said_with(folder: Path, **pip: str) -> str:
    """The set `small` with pip asked to look nowhere but where `pip` says."""
    small_set.make(folder / "requirements", ("idna",))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    alone = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_CACHE_DIR": "1", "MOTLEY_CACHE": str(folder / "cache")}
    command = [sys.executable, str(folder / "requirements/wheelhouse.py"), PYTHON, "small"]
    done = subprocess.run(command, check=False, env=kept | alone | pip, capture_output=True, text=True)
    assert done.returncode == 1 and len(done.stderr.splitlines()) <= 3, done.stderr
    return done.stderr


def test_no_way_to_the_index(tmp_path: Path) -> None:
    said = said_with(tmp_path, PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_RETRIES="0")
    assert "could not be fetched" in said and "idna" in said and "needs its package index" in said, said


def test_another_file_than_the_locked_one(tmp_path: Path) -> None:
    lock = (small_set.REPOSITORY / "requirements/node-cpu.txt").read_text()
    found = re.search(r"^idna==(\S+)", lock, re.MULTILINE)
    assert found
    (tmp_path / f"idna-{found[1]}-py3-none-any.whl").write_bytes(b"something else")
    said = said_with(tmp_path, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert "a download differs from its lock" in said, said


@pytest.mark.parametrize(
    "last", ["OSError: [Errno 28] No space left on device", "ERROR: Could not install: No space left on device"]
)
def test_a_full_disk_is_called_so(last: str) -> None:
    said = wheelhouse.explain(f"ERROR: Exception:\nTraceback …\n{last}\n'--require-hashes'", "3.11", ["node-cpu"])
    assert said.startswith("the disk is full: the wheels of node-cpu") and "df -h" in said
