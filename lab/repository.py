"""The package repository that the lab's hosts use: what their suite offers to roles, and the simulated drivers.

A flat folder without a Release file: an empty one would cost half a minute of retries. Newer drivers and kernels lie in
its folder later/, packages of 570 that only lead to 580 in renamed/. No host knows them until the faults
`newer-packages` and `570-leads-to-580` add them: as if an update had been published.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lab import deb, fake_packages, module_file
from lab.base import Base
from lab.deb import Deb
from lab.place import CACHE
from lab.shell import run
from train.cache import build_once

LATER, RENAMED = "later", "renamed"


def ensure(base: Base) -> Path:
    """The folder to serve, built once for this base and these simulated packages."""
    return build_once(CACHE / f"repository-{_version(base)}", lambda unfinished: _fill(unfinished, base))


def _fill(folder: Path, base: Base) -> None:
    for folder_of_its_own in (LATER, RENAMED):
        (folder / folder_of_its_own).mkdir()
    for package in base.offered.glob("*.deb"):
        os.link(package, folder / package.name)
    build(fake_packages.packages(fake_packages.CURRENT), folder)
    build(fake_packages.packages(fake_packages.LATER), folder / LATER)
    build(fake_packages.renamed("570", fake_packages.CURRENT), folder / RENAMED)
    for indexed in (folder / LATER, folder / RENAMED, folder):
        _index(indexed)


def build(packages: Iterable[Deb], folder: Path) -> list[Path]:
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda package: deb.build(package, folder), packages))


def _index(folder: Path) -> None:
    """One folder's own packages: what lies in the folders below it are other repositories."""
    index = run("dpkg-scanpackages", "--multiversion", folder)
    entries = index.replace(f"Filename: {folder}/", "Filename: ./").split("\n\n")
    below = tuple(f"Filename: ./{name}/" for name in (LATER, RENAMED))
    (folder / "Packages").write_text("\n\n".join(entry for entry in entries if not any(b in entry for b in below)))


def _version(base: Base) -> str:
    digest = hashlib.sha256(base.root.parent.name.encode())
    for module in (__file__, deb.__file__, fake_packages.__file__, module_file.__file__):
        digest.update(Path(module).read_bytes())
    for program in sorted(fake_packages.PROGRAMS.iterdir()):
        if program.is_file():
            digest.update(program.name.encode() + program.read_bytes())
    return digest.hexdigest()[:12]
