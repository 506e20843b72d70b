"""Which files of a Python environment are no longer as they were installed.

ENV/motley-files.json lists every file with its package, its hash, its size and its times. A file whose size, mtime and
ctime are as listed is taken for unchanged; of the others the hash decides, with `full` of all. Where it is right, as
after a backup was put back, the new times are listed. An environment that an earlier Motley built has no list: it gets
one once all its files have the hashes of their wheels' RECORD. Python's caches follow from the files: they are left
out.
"""

from __future__ import annotations

import base64
import csv
import json
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..train.files import file_hash
from .files import read_json

LIST = "motley-files.json"
OURS = ("motley-env.json", ".motley-env.json", LIST, f".{LIST}", ".lock")  # what a killed writer left, uv's lock
CACHE = "__pycache__"
SITE, INFO = "/site-packages/", ".dist-info/"
NEVER = [0, 0, 0]
UNKNOWN = ["", "", *NEVER]

Files = dict[str, list[Any]]
"""Path below the environment → package ("" where none brought it), hash ("" if unknown), size, mtime, ctime."""


def of_lock(line: str) -> str:
    """Which package, as of_wheel says it, a line of a lock is about."""
    name, _, version = line.partition(" ")[0].partition("==")
    return f"{name.replace('-', '_')}-{version}".lower()


@dataclass(frozen=True, slots=True)
class Drift:
    changed: dict[str, list[str]]
    """Package → its files that are changed or gone; "" has those that the environment itself is made of."""
    gone: list[str]
    """Packages of which nothing is left."""
    came: list[str]
    """Packages that somebody installed, and other files."""

    def __bool__(self) -> bool:
        return bool(self.changed or self.came)

    @property
    def packages(self) -> list[str]:
        """The packages that are to be installed again, if that is all that is wrong."""
        return [] if self.came or "" in self.changed else sorted(self.changed)

    def __str__(self) -> str:
        names = sorted(package.partition("-")[0] or "Python" for package in self.changed if package not in self.gone)
        files = [file for package, files in self.changed.items() if package not in self.gone for file in files]
        where = f" ({_some(files, 1)})" if len(names) == 1 else ""
        gone = [package.partition("-")[0] for package in self.gone]
        parts = {"changed": _some(names) + where, "gone": _some(gone), "came": _some(self.came)}
        return "; ".join(f"{word}: {names}" for word, names in parts.items() if names)


def _some(words: list[str], most: int = 3) -> str:
    more = len(words) - most
    return " ".join(words[:most]) + (f" and {more} more" if more > 0 else "")


def look(env: Path, packages: list[str], *, full: bool = False, write: bool = True) -> Drift:
    """What differs from the list. `packages` (NAME-VERSION) are those that it was made with."""
    env = env.resolve()
    listed, here = read(env), on_disk(env)
    if not full and {path: entry[2:] for path, entry in listed.items()} == here:
        return Drift({}, [], [])
    files = listed or {path: UNKNOWN for path in here if SITE not in path} | of_packages(env, packages)
    doubtful = [path for path in files if path in here and (full or files[path][2:] != here[path])]
    with ThreadPoolExecutor(4) as pool:
        hashes = dict(zip(doubtful, pool.map(lambda path: hash_of(env / path), doubtful), strict=True))
    wrong, seen = [], {}
    for path, (package, known, *_) in files.items():
        now = hashes.get(path, known) if path in here else ""
        right = bool(now) and now == (known or now)
        wrong += [] if right else [path]
        # What is wrong is not accepted by its times later on.
        seen[path] = [package, known or now, *(here[path] if right else NEVER)]
    new = sorted(here.keys() - files.keys())
    if write and seen != listed and (listed or not (wrong or new)):
        with suppress(OSError):  # without the list it takes longer, and finds the same
            write_list(env, seen)
    left = {str(entry[0]) for path, entry in files.items() if path in here}
    return drift(env, files, sorted(wrong), new, left)


def drift(env: Path, files: Files, wrong: list[str], new: list[str], left: set[str]) -> Drift:
    changed: dict[str, list[str]] = {}
    for path in wrong:
        changed.setdefault(files[path][0], []).append(short(path))
    whole = sorted({short(path).split(INFO)[0] for path in new if INFO in path})
    theirs = of_packages(env, whole)
    return Drift(changed, sorted(changed.keys() - left), [*whole, *(short(path) for path in new if path not in theirs)])


def short(path: str) -> str:
    return path.partition(SITE)[2] or path


# -- what there is ---------------------------------------------------------------------------------------------


def on_disk(env: Path) -> dict[str, list[int]]:
    statuses, folders, top = {}, [""], f"{env}/"
    while folders:
        folder = folders.pop()
        with suppress(OSError), os.scandir(top + folder) as entries:  # what root closed has lost its files
            for entry in entries:
                path = folder + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    statuses[path] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns]
                elif entry.name != CACHE:
                    folders.append(f"{path}/")
    return {path: status for path, status in statuses.items() if not path.startswith(OURS)}


def hash_of(file: Path) -> str:
    """A file's hash as a wheel's RECORD writes it; of a link, where it leads; empty where it cannot be read."""
    try:
        if file.is_symlink():
            return f"-> {file.readlink()}"
        return base64.urlsafe_b64encode(bytes.fromhex(file_hash(file))).rstrip(b"=").decode()
    except OSError:
        return ""


def of_packages(env: Path, packages: list[str]) -> Files:
    """What the packages' own lists say that they have."""
    files: Files = {}
    site = site_of(env)
    for package in packages:
        record = f"{package}{INFO}RECORD"
        try:
            rows = list(csv.reader((site / record).read_text().splitlines()))
        except OSError:
            rows = [[record, ""]]
        for name, digest, *_ in filter(None, rows):
            path = os.path.normpath(f"{site}/{name}") if ".." in name else f"{site}/{name}"
            if path.startswith(f"{env}/") and CACHE not in path:
                known = digest.removeprefix("sha256=") if digest.startswith("sha256=") else ""
                path = path.removeprefix(f"{env}/")
                # Where several packages bring a file and differ, only the disk knows who wrote last.
                same = files.get(path, ["", known])[1] == known
                files[path] = [package, known if same else "", *NEVER]
    return files


def installed(env: Path) -> list[str]:
    """Names and versions, without starting its Python."""
    return sorted(path.name.removesuffix(".dist-info") for path in site_of(env).glob("*.dist-info"))


def site_of(env: Path) -> Path:
    return next(env.glob("lib/python*/site-packages"), env)


# -- the list --------------------------------------------------------------------------------------------------


def read(env: Path) -> Files:
    files: Files = read_json(env / LIST)
    return files


def write_list(env: Path, files: Files) -> None:
    new = env / f".{LIST}.{os.getpid()}"
    new.write_text(json.dumps(files, separators=(",", ":")))
    new.replace(env / LIST)


def of_wheel(name: str) -> str:
    """`package-version` of a wheel's file name, as its folder in an environment is called but for capitals."""
    return "-".join(name.split("-")[:2]).lower()


def write_down(env: Path) -> None:
    """What was just installed, by the packages' own lists; what none of them knows, as it is."""
    files = of_packages(env, installed(env))
    entries = {path: (*files.get(path, UNKNOWN)[:2], at) for path, at in on_disk(env).items()}
    write_list(env, {path: [name, known or hash_of(env / path), *at] for path, (name, known, at) in entries.items()})
