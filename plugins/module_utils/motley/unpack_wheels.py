"""Unpacks locked wheels into a virtual environment on all cores of a node: the whole set is known, nothing is resolved.

Several times as quick as pip, which works on one core and looks at each wheel three times. Every wheel is compared
with its hash before anything of it is written, and zipfile compares each file with its checksum. What is installed is
what pip installs (PEP 427): the same files, scripts and RECORD.
"""

from __future__ import annotations

import configparser
import csv
import hashlib
import io
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from .env_files import Written, encoded

CHUNK = 1 << 20
READ_BYTES = 256 << 10
LOCAL_HEADER = struct.Struct("<26x2H")
LOT_BYTES = 32 << 20  # what one thread unpacks at a time: a large wheel is shared among all
SHEBANG_BYTES = 127  # the kernel cuts longer ones


class Refused(Exception):
    """A wheel that is not what it should be."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a wheel's files go."""

    env: Path
    site: Path

    @classmethod
    def of(cls, env: Path, python: str) -> Place:
        return cls(env, env / f"lib/python{python}/site-packages")

    @property
    def scripts(self) -> Path:
        return self.env / "bin"


@dataclass(frozen=True, slots=True)
class Lot:
    """Some files of one wheel, each with where it goes."""

    wheel: Path
    package: str
    files: list[tuple[zipfile.ZipInfo, Path]]


def install(wheels: Path, files: dict[str, dict[str, Any]], place: Place) -> list[Written]:
    """All of them, or Refused; files is name → {size, sha256}."""
    try:
        return unpack_all([wheels / name for name in files], files, place)
    except (zipfile.BadZipFile, KeyError) as wrong:
        raise Refused(f"one is no wheel: {wrong.args[0]}") from None


def unpack_all(paths: list[Path], files: dict[str, dict[str, Any]], place: Place) -> list[Written]:
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        list(pool.map(lambda path: compare(path, files[path.name]["sha256"]), paths))
        plans = list(pool.map(lambda path: plan(path, place), paths))
        lots = sorted((lot for plan in plans for lot in plan), key=lot_bytes, reverse=True)
        folders = {to.parent for lot in lots for _, to in lot.files} | {place.scripts}
        for folder in folders:
            folder.mkdir(parents=True, exist_ok=True)
        written = list(pool.map(lambda lot: unpack(lot, place), lots))
        written += pool.map(lambda path: finish(path, place), paths)
    return [entry for some in written for entry in some]


def compare(path: Path, sha256: str) -> None:
    digest = hashlib.sha256()
    try:
        with path.open("rb", buffering=0) as stream:
            while block := stream.read(CHUNK):
                digest.update(block)
    except FileNotFoundError:
        raise Refused(f"{path.name} is not there") from None
    if digest.hexdigest() != sha256:
        raise Refused(f"{path.name}: its hash is {digest.hexdigest()[:12]}…, it should be {sha256[:12]}…")


def plan(path: Path, place: Place) -> list[Lot]:
    lots: list[Lot] = []
    room = 0
    with opened(path) as archive:
        check_format(archive, path)
        folder = dist_info(archive, path)
        for info in archive.infolist():
            if info.is_dir() or info.filename == f"{folder}/RECORD":
                continue
            if room <= 0:
                lots.append(Lot(path, folder.removesuffix(".dist-info"), []))
                room = LOT_BYTES
            lots[-1].files.append((info, where(info.filename, path, place)))
            room -= info.file_size
    return lots


def lot_bytes(lot: Lot) -> int:
    return sum(info.file_size for info, _ in lot.files)


def opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except zipfile.BadZipFile as wrong:
        raise Refused(f"{path.name}: {wrong}") from None


def dist_info(archive: zipfile.ZipFile, path: Path) -> str:
    name, version = path.name.split("-")[:2]
    wanted = f"{name}-{version}.dist-info".lower()
    for entry in archive.namelist():
        top = entry.split("/", 1)[0]
        if top.lower() == wanted:
            return top
    raise Refused(f"{path.name} has no {wanted}")


def check_format(archive: zipfile.ZipFile, path: Path) -> None:
    words = archive.read(f"{dist_info(archive, path)}/WHEEL").decode()
    version = next((line.split(":")[1].strip() for line in words.splitlines() if line.startswith("Wheel-Version:")), "")
    if version.split(".")[0] != "1":
        raise Refused(f"{path.name} is of wheel version {version or 'none'}, 1 is known")


def where(name: str, wheel: Path, place: Place) -> Path:
    """A wheel's own files go to site-packages; those below NAME.data/KIND to the folder of their kind."""
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise Refused(f"{wheel.name} wants to write to {name}")
    if not parts[0].endswith(".data"):
        return place.site / name
    distribution = wheel.name.split("-")[0]
    headers = place.env / "include/site" / place.site.parent.name / distribution
    kinds = {"purelib": place.site, "platlib": place.site, "scripts": place.scripts, "data": place.env}
    folder = (kinds | {"headers": headers}).get(parts[1])
    if folder is None:
        raise Refused(f"{wheel.name} has files of an unknown kind: {name}")
    return folder.joinpath(*parts[2:])


def unpack(lot: Lot, place: Place) -> list[Written]:
    written = []
    with lot.wheel.open("rb") as wheel:
        for info, to in lot.files:
            runs = bool(info.external_attr >> 16 & 0o111) or to.parent == place.scripts
            blocks = contents(wheel, info, lot.wheel.name)
            if to.parent == place.scripts:
                blocks = iter([with_our_python(b"".join(blocks), place)])
            digest = hashlib.sha256()
            with file_for(to, 0o755 if runs else 0o644) as out:
                for block in blocks:
                    out.write(block)
                    digest.update(block)
            written.append((lot.package, to, encoded(digest)))
    return written


def contents(wheel: BinaryIO, info: zipfile.ZipInfo, name: str) -> Iterator[bytes]:
    """In blocks, compared with the checksum. zipfile's own reader holds the interpreter's lock most of the time."""
    wheel.seek(info.header_offset)
    header = wheel.read(LOCAL_HEADER.size)
    if len(header) < LOCAL_HEADER.size or not header.startswith(b"PK\3\4"):
        raise Refused(f"{name}: {info.filename} is not where it should be")
    wheel.seek(sum(LOCAL_HEADER.unpack(header)[-2:]), os.SEEK_CUR)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise Refused(f"{name}: {info.filename} is packed in a way that is not known")
    inflate = zlib.decompressobj(-zlib.MAX_WBITS) if info.compress_type == zipfile.ZIP_DEFLATED else None
    left, checksum = info.compress_size, 0
    try:
        while left and (block := wheel.read(min(left, READ_BYTES))):
            left -= len(block)
            if inflate:
                block = inflate.decompress(block)
            checksum = zlib.crc32(block, checksum)
            yield block
        if inflate and (rest := inflate.flush()):
            checksum = zlib.crc32(rest, checksum)
            yield rest
    except zlib.error as wrong:
        raise Refused(f"{name}: {info.filename}: {wrong}") from None
    if left or checksum != info.CRC:
        raise Refused(f"{name}: {info.filename} has another checksum than the wheel says")


def file_for(path: Path, mode: int) -> io.FileIO:
    """A new one: who has the old one open keeps it, and what it is a link to stays."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC
    try:
        return io.FileIO(os.open(path, flags | os.O_EXCL, mode), "w")
    except FileExistsError:
        path.unlink(missing_ok=True)
        return io.FileIO(os.open(path, flags | os.O_TRUNC, mode), "w")


# -- scripts and the record ------------------------------------------------------------------------------------


def with_our_python(content: bytes, place: Place) -> bytes:
    first, line_end, rest = content.partition(b"\n")
    return (shebang(place).encode() + rest) if line_end and first.startswith(b"#!python") else content


def shebang(place: Place) -> str:
    python = f"{place.scripts}/python"
    if " " not in python and len(python) + 3 <= SHEBANG_BYTES:
        return f"#!{python}\n"
    return f"#!/bin/sh\n'''exec' \"{python}\" \"$0\" \"$@\"\n' '''\n"


def finish(path: Path, place: Place) -> list[Written]:
    """Scripts of the entry points, who installed it, and RECORD, by which pip could remove it."""
    with opened(path) as archive:
        folder = dist_info(archive, path)
        names = archive.namelist()
        points = f"{folder}/entry_points.txt"
        made = (
            [write_script(*script, place) for script in scripts(archive.read(points).decode())]
            if points in names
            else []
        )
        rows = list(csv.reader(io.StringIO(archive.read(f"{folder}/RECORD").decode())))
    installer, record = place.site / folder / "INSTALLER", place.site / folder / "RECORD"
    made.append(write_text(installer, "motley\n"))
    kept = []
    for name, *facts in (row for row in rows if row and row[0] != f"{folder}/RECORD"):
        to = where(name, path, place)
        if to == installer:
            continue
        kept.append([os.path.relpath(to, place.site), *facts] if to.parent != place.scripts else recorded(to, place))
    lines = io.StringIO()
    csv.writer(lines, lineterminator="\n").writerows([*kept, *(recorded(file, place) for file in made)])
    write_text(record, f"{lines.getvalue()}{folder}/RECORD,,\n")
    return [
        (folder.removesuffix(".dist-info"), file, encoded(hashlib.sha256(file.read_bytes())))
        for file in (*made, record)
    ]


def write_text(path: Path, text: str) -> Path:
    with file_for(path, 0o644) as out:
        out.write(text.encode())
    return path


def recorded(file: Path, place: Place) -> list[str]:
    content = file.read_bytes()
    return [os.path.relpath(file, place.site), f"sha256={encoded(hashlib.sha256(content))}", str(len(content))]


def scripts(entry_points: str) -> Iterator[tuple[str, str, str]]:
    """Name, module and what is called in it."""
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their capitals
    parser.read_string(entry_points)
    for section in ("console_scripts", "gui_scripts"):
        for name, value in parser.items(section) if parser.has_section(section) else ():
            module, _, call = value.split("[")[0].strip().partition(":")
            yield name, module.strip(), call.strip()


def write_script(name: str, module: str, call: str, place: Place) -> Path:
    path = place.scripts / PurePosixPath(name).name
    first = call.partition(".")[0]
    body = f'import sys\n\nfrom {module} import {first}\n\nif __name__ == "__main__":\n    sys.exit({call}())\n'
    with file_for(path, 0o755) as out:
        out.write((shebang(place) + body).encode())
    return path
