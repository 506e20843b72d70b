"""What the controller says when wheels cannot be fetched: the cause that pip reports, and its fix."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from requirements import wheelhouse
from tests.support import made_wheels, small_set

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


def locked(folder: Path, name: str, version: str) -> None:
    """The set NAME is this one wheel, which nobody but `folder`/index has."""
    (folder / "index").mkdir(exist_ok=True)
    (facts,) = made_wheels.plain(folder / "index", name, version, main=b"x = 1\n").values()
    line = f"{name}=={version} --hash=sha256:{facts['sha256']}\n"
    (folder / f"requirements/{name}.txt").write_text(line)


def kept(folder: Path, *sets: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
    env |= {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(folder / "index")}
    command = [sys.executable, str(folder / "requirements/wheelhouse.py"), PYTHON, *sets]
    done = subprocess.run(
        command, env=env | {"MOTLEY_CACHE": str(folder / "cache")}, capture_output=True, text=True, check=True
    )
    return dict(json.loads(done.stdout))


def test_another_uv_fetches_no_other_wheel_again(tmp_path: Path) -> None:
    small_set.make(tmp_path / "requirements", ())
    locked(tmp_path, "small", "1.0")
    without = kept(tmp_path, "small")  # as a Motley without uv kept it
    for path in (tmp_path / "index").iterdir():
        path.unlink()  # from now on it could not be fetched
    for version in ("1.0", "2.0"):
        locked(tmp_path, "uv", version)
        first, second = kept(tmp_path, "small", "uv"), kept(tmp_path, "small", "uv")
        assert (first["id"], first["folder"]) == (without["id"], without["folder"])
        assert list(first["files"]) == ["small-1.0-py3-none-any.whl", f"uv-{version}-py3-none-any.whl"]
        assert {name: wheelhouse.facts(Path(first["folder"]) / name) for name in first["files"]} == first["files"]
        assert (first["fetched"], second["fetched"]) == (True, False) and second["files"] == first["files"]
