"""Wheels of any C library that the nodes' systems have are found: pip takes none whose name it was not told."""

from __future__ import annotations

import platform
import zipfile
from pathlib import Path

import pytest

from requirements.fetch_wheels import fetch

MACHINE = platform.machine()


def wheel(folder: Path, glibc: int) -> None:
    name = f"thing-1.{glibc}-py3-none-manylinux_2_{glibc}_{MACHINE}.whl"
    known = f"thing-1.{glibc}.dist-info"
    with zipfile.ZipFile(folder / name, "w") as file:
        file.writestr(f"{known}/METADATA", f"Metadata-Version: 2.1\nName: thing\nVersion: 1.{glibc}\n")
        file.writestr(f"{known}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: false\n")
        file.writestr(f"{known}/RECORD", "")


@pytest.mark.parametrize("glibc", [5, 17, 25, 31, 36])  # CUDA's have 2.25, vLLM's needs 2.31
def test_a_wheel_for_any_system_that_motley_serves_is_fetched(glibc: int, tmp_path: Path) -> None:
    index, to = tmp_path / "index", tmp_path / "to"
    for folder in (index, to):
        folder.mkdir()
    wheel(index, glibc)
    more = ("--no-index", f"--find-links={index}")
    fetch(to, "3.11", MACHINE, f"thing==1.{glibc}\n", *more, hashed=False)
    assert [file.name for file in to.iterdir()] == [f"thing-1.{glibc}-py3-none-manylinux_2_{glibc}_{MACHINE}.whl"]
