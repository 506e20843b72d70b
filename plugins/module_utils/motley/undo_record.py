"""What a phase found on a node before it changed anything, so that it can be put back.

/var/lib/motley/before/PHASE/ holds manifest.json and one copy of every file touched. A thing is recorded when it is
touched for the first time and never again: later runs do not overwrite the true beginning.
"""

from __future__ import annotations

import errno
import io
import json
import os
import pwd
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from stat import S_ISLNK
from typing import TypedDict

from ..train.files import file_hash, write_atomic
from .errors import ModuleError
from .files import read_json

ROOT = Path("/var/lib/motley/before")
SHARED = ("hosts", "authorized_keys")  # others write there too; ours is a marked block
BEGIN, END = "# motley begin", "# motley end"
TAKEN = "# motley took out: "  # before a line of somebody else's that the block stands for
OPEN_END = "# the line above had no line break"
MOST_LINKS = 40  # as the kernel has it


@contextmanager
def as_its_person(path: Path) -> Iterator[Path]:
    """Below a folder of somebody's, root is that person: a link laid there leads no further than they get themselves.

    Gives what the path leads to, which is written in place of a link. Root stays root where the whole way is root's. It
    is the whole process that changes: no threads.
    """
    person = next(filter(None, owners(path)), 0) if os.geteuid() == 0 else 0
    if not person:
        yield Path(os.path.realpath(path))
        return
    account, groups, group = pwd.getpwuid(person), os.getgroups(), os.getegid()
    try:
        os.setgroups(os.getgrouplist(account.pw_name, account.pw_gid))
        os.setegid(account.pw_gid)
        os.seteuid(person)
        yield Path(os.path.realpath(path))
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def owners(path: Path, links: int = 0) -> Iterator[int]:
    """Yields the owner of each folder and each link on the way to what a path leads to."""
    for place in [*reversed(path.parents), path]:
        try:
            status = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        if S_ISLNK(status.st_mode):
            yield status.st_uid
            if links < MOST_LINKS:
                yield from owners(place.parent / place.readlink() / path.relative_to(place), links + 1)
            return
        if place != path:
            yield status.st_uid


def digest(path: Path) -> str:
    with as_its_person(path) as file:
        return file_hash(file) if file.is_file() else ""


def write_file(path: Path, content: str, mode: int, owner: tuple[int, int]) -> None:
    """All or nothing: a full disk or a power cut leaves the old file."""
    try:
        with as_its_person(path) as file:
            if file.exists() and not file.is_file():
                raise PermissionError(errno.EPERM, "it leads to no file")
            own = owner if os.geteuid() in (0, owner[0]) else (os.geteuid(), -1)
            make_parents(file, own)
            write_atomic(file, content.encode(errors="surrogateescape"), mode=mode, owner=own)
    except PermissionError as error:
        raise PermissionError(error.errno, error.strerror, str(path)) from None


def make_parents(path: Path, owner: tuple[int, int]) -> None:
    """Folders on the way that are missing; private where they are a person's own."""
    for folder in reversed(missing_parents(path)):
        folder.mkdir(mode=0o700)
        os.chown(folder, *owner)
        folder.chmod(0o700 if owner[0] else 0o755)  # whatever the umask is


def read_text(path: Path) -> str | None:
    """Such that writing it again gives the same bytes, whatever their encoding and line breaks."""
    with as_its_person(path) as file:
        return file.read_bytes().decode("utf-8", errors="surrogateescape") if file.is_file() else None


def printable(text: str | None) -> str:
    """The text for a diff: what is not UTF-8 would make Ansible refuse all that a module says."""
    return (text or "").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def with_block(
    text: str, block: str, drop: str = "", keep: str = "", *, stay: str = "", names: Sequence[str] = ()
) -> str:
    """`text` with our marked block at its end, once; `without_block` gives back the text, byte for byte.

    Lines that fully match `drop` become comments, and so do lines of /etc/hosts that hold one of `names`: what else
    they hold stands in the block. A line of the block that was there and matches `keep` stays, unless the new block has
    one that matches; one that matches `stay` stays beside it, in its place, unless it is the same key.
    """
    wanted = block.strip().splitlines()
    if keep and not any(re.fullmatch(keep, line) for line in wanted):
        wanted += [line for line in block_of(text) if re.fullmatch(keep, line)]
    if stay:
        wanted = beside(block_of(text), wanted, stay)
    whole = without_block(text)
    lines = []
    for line in io.StringIO(whole):
        dropped = bool(drop and re.fullmatch(drop, line.strip()))
        rest = line if dropped else without_names(line, names)
        lines.append(line if rest == line and not dropped else TAKEN + line)
        if rest and rest != line:
            wanted.append(rest)
    opened = [OPEN_END] if whole and not whole.endswith("\n") else []
    glue = "\n" if opened else ""
    return "".join(lines) + glue + "".join(f"{line}\n" for line in [BEGIN, *opened, *wanted, END])


def without_names(line: str, names: Sequence[str]) -> str:
    """A line of /etc/hosts without these names and without its comment; as it is where it has none of them."""
    unwanted = {name.lower() for name in names}
    address, *names_there = line.split("#", maxsplit=1)[0].split() or [""]
    others = [name for name in names_there if name.lower() not in unwanted]
    if others == names_there:
        return line
    return " ".join([address, *others]) if others else ""


def block_of(text: str) -> list[str]:
    lines = [line.strip() for line in io.StringIO(text)]
    return lines[lines.index(BEGIN) + 1 : lines.index(END)] if BEGIN in lines and END in lines else []


def beside(old: list[str], wanted: list[str], stay: str) -> list[str]:
    """What is wanted, and the old lines that match `stay`; each where it was, so that two may write in turns."""
    keys = [key_in(line) for line in wanted]
    theirs = [line for line in old if re.fullmatch(stay, line) and key_in(line) not in keys]
    kept = [line for line in old if line in wanted or line in theirs]
    return kept + [line for line in wanted if line not in kept]


def key_in(line: str) -> list[str]:
    """Kind and key of a line without options: what it is called after them may change."""
    return line.split()[:2]


def of_others(text: str, own: str, others: str) -> list[str]:
    """The lines of our block that match `others` and hold another key than `own`."""
    return [line for line in block_of(text) if re.fullmatch(others, line) and key_in(line) != key_in(own)]


def without_own(text: str, own: str, others: str) -> str:
    """Without our block; as long as others have a line in it, without our own line only."""
    if not of_others(text, own, others):
        return without_block(text)
    return "".join(line for line in io.StringIO(text) if not own or key_in(line) != key_in(own))


def without_block(text: str) -> str:
    """Without our block, and with the lines that it stood for."""
    lines, inside, opened = [], False, False
    for line in io.StringIO(text):
        word = line.strip()
        if word == BEGIN:
            inside = True
        elif word == END:
            inside = False
        elif inside:
            opened = opened or word == OPEN_END
        else:
            lines.append(line.removeprefix(TAKEN))
            opened = False  # something follows our block: the line above it keeps its break
    if opened and lines:
        lines[-1] = lines[-1].removesuffix("\n")
    return "".join(lines)


def undone(path: Path, after: str, was: str | None) -> str:
    """gone; back (as before Motley); no block (its part was taken out); empty when it stands."""
    if not after:
        return ""  # the phase only remembered it
    if not path.exists():
        return "gone"
    if digest(path) == after:
        return ""
    now = read_text(path) or ""
    if was is not None and now == was:
        return "back"
    if path.name in SHARED:
        return "" if BEGIN in now else "no block"
    return "edited"


class KeptFile(TypedDict, total=False):
    """A file as it was before Motley changed it; `after`: the hash of what Motley wrote."""

    existed: bool
    whole_in_file: bool
    mode: int
    owner: list[int]
    copy: str
    after: str


class KeptPackage(TypedDict):
    version: str
    auto: bool
    held: bool


class Manifest(TypedDict, total=False):
    """What the undo of a phase needs; gpu_driver keeps packages and holds, static_ip the address before."""

    files: dict[str, KeptFile]
    undo: list[list[str]]
    folders: list[str]
    packages: dict[str, KeptPackage | None]
    holds: list[str]
    reached_at: str


class Before:
    def __init__(self, phase: str, root: Path = ROOT) -> None:
        self.folder = root / phase
        self.manifest_path = self.folder / "manifest.json"
        self.data: Manifest = {"files": {}, "undo": [], "folders": []}
        if self.manifest_path.exists():
            known = read_json(self.manifest_path)
            if not known.keys() >= self.data.keys():
                fix = "put it right, on that machine; or remove it, and nothing of that phase can be put back"
                raise ModuleError(f"{self.manifest_path} is damaged", fix)
            self.data = known

    @property
    def recorded(self) -> bool:
        return self.manifest_path.exists()

    def keep(self, path: Path) -> None:
        """Remember a file as it is now, unless it is remembered already."""
        if str(path) in self.data["files"]:
            return
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with as_its_person(path) as file:
            status = file.stat() if file.is_file() else None
            content = file.read_bytes() if status else b""
            self.data["folders"] += [str(p) for p in missing_parents(file) if str(p) not in self.data["folders"]]
        # The first versions took lines out of a file without leaving them in it: what they recorded has no such mark.
        entry: KeptFile = {"existed": bool(status), "whole_in_file": True}
        if status:
            entry |= mode_and_owner(status)
            entry["copy"] = f"{len(self.data['files']):02d}-{path.name}"
            with (self.folder / entry["copy"]).open("wb") as copy:
                os.fchmod(copy.fileno(), 0o600)
                copy.write(content)
                copy.flush()
                os.fsync(copy.fileno())  # on the disk before the manifest that names it
        self.data["files"][str(path)] = entry
        self.save()

    def wrote(self, path: Path) -> None:
        self.data["files"][str(path)]["after"] = digest(path)
        self.save()

    def remember_address(self, address: str) -> None:
        """Remembers where the node was reached before; the first one stays."""
        if "reached_at" not in self.data:
            self.data["reached_at"] = address
            self.save()

    def keep_undo(self, command: list[str]) -> None:
        if command not in self.data["undo"]:
            self.data["undo"].append(command)
            self.save()

    def save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file(self.manifest_path, json.dumps(self.data, indent=1) + "\n", 0o600, (os.geteuid(), os.getegid()))

    def contents(self) -> dict[str, str | None]:
        """Every remembered file as it was; None where there was none. One whose copy is lost is not among them."""
        return {
            path: read_text(self.folder / entry["copy"]) if entry["existed"] else None
            for path, entry in self.data["files"].items()
            if not self._is_lost(entry)
        }

    def _is_lost(self, entry: KeptFile) -> bool:
        return entry["existed"] and not (self.folder / entry["copy"]).is_file()

    def restore(self) -> list[str]:
        """Put every file back. Returns sentences about files that somebody edited since, where only our part went."""
        lost = [name for name, entry in self.data["files"].items() if self._is_lost(entry)]
        remarks = [f"{name}: what it was is lost: it stays as it is" for name in lost]
        for name, was in self.contents().items():
            path, entry = Path(name), self.data["files"][name]
            remark, now = self._back(path, entry, was)
            remarks += [remark] if remark else []
            if now is None:
                with as_its_person(path) as file:
                    if file.is_file():
                        file.unlink()
            else:
                with as_its_person(path) as file:
                    kept = entry if entry["existed"] else mode_and_owner(file.stat())  # ours, edited since
                write_file(path, now, kept["mode"], (kept["owner"][0], kept["owner"][1]))
        for folder in sorted(self.data["folders"], key=len, reverse=True):
            with as_its_person(Path(folder)):
                if Path(folder).is_dir() and not any(Path(folder).iterdir()):
                    Path(folder).rmdir()
        return remarks

    def _back(self, path: Path, entry: KeptFile, was: str | None) -> tuple[str, str | None]:
        """What to say about a file, and what it is to be; None: gone."""
        now = read_text(path)
        before = digest(self.folder / entry["copy"]) if entry["existed"] else ""
        untouched = digest(path) in (entry.get("after", digest(path)), before)
        if now is not None and BEGIN in now and (entry.get("whole_in_file") or not untouched):
            rest = without_block(now)
            if rest == (was or ""):
                return "", was
            return f"{path} was edited since: only Motley's block is taken out", rest
        if untouched:
            return "", was
        return f"{path} was edited since: left as it is", now

    def run_undo(self) -> None:
        """Each command is forgotten once it is done: it needs files that restore() takes away."""
        while self.data["undo"]:
            command = self.data["undo"][-1]
            subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
            self.data["undo"].pop()
            self.save()

    def forget(self) -> None:
        """The manifest first: without it there is no record, whatever a power cut leaves of the copies."""
        if not self.folder.is_dir():
            return
        self.manifest_path.unlink(missing_ok=True)
        for file in self.folder.iterdir():
            file.unlink()
        self.folder.rmdir()


def mode_and_owner(status: os.stat_result) -> KeptFile:
    return {"mode": status.st_mode & 0o7777, "owner": [status.st_uid, status.st_gid]}


def missing_parents(path: Path) -> list[Path]:
    return [parent for parent in path.parents if not parent.exists()]
