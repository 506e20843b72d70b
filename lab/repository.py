"""The package repository that the lab's hosts use: what their suite offers to roles, and the simulated drivers.

A flat folder without a Release file: an empty one would cost half a minute of retries.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

from lab.base import Base
from lab.place import CACHE
from lab.shell import run

SOURCES = Path(__file__).parent / "packages"


def ensure(base: Base) -> Path:
    """The folder to serve, built once for this base and these package sources."""
    folder = CACHE / f"repository-{_version(base)}"
    if folder.exists():
        return folder
    unfinished = folder.with_name(f"{folder.name}.{os.getpid()}.unfinished")
    unfinished.mkdir(parents=True)
    try:
        for package in base.offered.glob("*.deb"):
            os.link(package, unfinished / package.name)
        for source in sorted(SOURCES.glob("*/DEBIAN/control")):
            _pack(source.parent.parent, unfinished)
        index = run("dpkg-scanpackages", "--multiversion", unfinished)
        (unfinished / "Packages").write_text(index.replace(f"Filename: {unfinished}/", "Filename: ./"))
        if not folder.exists():
            unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _pack(source: Path, into: Path) -> None:
    run("dpkg-deb", "--root-owner-group", "--build", source, into)


def _version(base: Base) -> str:
    digest = hashlib.sha256(base.root.parent.name.encode() + Path(__file__).read_bytes())
    for file in sorted(SOURCES.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(SOURCES)} {file.stat().st_mode:o}".encode() + file.read_bytes())
    return digest.hexdigest()[:12]
