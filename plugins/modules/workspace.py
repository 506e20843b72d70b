#!/usr/bin/python
# MIT License, see LICENSE
"""The cluster's folders on a node, and the training package in them, known by a hash of its content.

HOME/code is a link to code.HASH, which holds train/. What a run or a person put into the folders is never removed.
"""

from __future__ import annotations

import base64
import fcntl
import io
import json
import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypedDict

from ansible.module_utils.motley.documented import Done, module_of
from ansible.module_utils.motley.env_link import point, target
from ansible.module_utils.motley.files import difference, existing, read_json
from ansible.module_utils.train.files import write_atomic
from ansible.module_utils.train.runlog.paths import SECRET

DOCUMENTATION = r"""
module: workspace
short_description: The cluster's folders on a node, with the training package
author: Motley
description:
  - Makes the folders below O(home) and unpacks the training package beside the present one; the link code leads to it.
  - O(state=absent) removes what it made; a folder in which something is stays.
options: {
  "home": {"type": "path", "required": true, "description": "The cluster's folder on the node"},
  "state": {"type": "str", "choices": ["present", "absent"], "default": "present",
    "description": "Whether it is to be there"},
  "folders": {"type": "list", "elements": "str", "default": [], "description": "Folders below home"},
  "package": {"type": "dict", "default": {},
    "description": "The training package: hash and archive (base64 of a tar.gz)"},
  "disk_gb": {"type": "float", "default": 0, "description": "Least free space"}
}
"""
EXAMPLES = """
- name: Make the cluster's folders
  workspace:
    home: ~/ai-cluster
    folders: [models/base, results]
    package: "{{ 'train' | motley_package }}"
"""
RETURN = """
changed: {type: bool, returned: always, description: Whether something was made or removed}
"""
RECORD = ".motley-workspace.json"
LOCK = ".code.lock"
KEEP = 2  # versions of the code: the present one and the one before, which a run may still use


def main() -> None:
    module = module_of(DOCUMENTATION)
    params = module.params
    home = Path(params["home"])
    if params["state"] == "absent":
        try:
            module.exit_json(**remove(home, pretend=module.check_mode))
        except OSError as error:  # somebody ran something there as root, most often
            fix = f"on this machine: sudo chown -R $USER {home}, then again"
            module.fail_json(msg=f"not all below {home} could be removed: {error}\nfix: {fix}")
    if findings := obstacles(home, params):
        module.fail_json(msg="\n".join(findings))
    # without what it was called with: the package in it is so long that ansible-runner would leave the whole result out
    module.exit_json(**make(home, params, pretend=module.check_mode), invocation={})


class Package(TypedDict):
    hash: str
    archive: str
    """A tar archive in base64."""


class Make(TypedDict):
    folders: list[str]
    disk_gb: float
    package: Package | None


def obstacles(home: Path, params: Make) -> list[str]:
    findings = []
    paths = [home, *(home / name for name in params["folders"])]
    foreign = [path for path in paths if path.exists() and not mine(path)]
    if foreign:
        findings.append(
            f"{', '.join(map(str, foreign))} cannot be written by the login user\n"
            f"fix: sudo chown -R $(id -un): {home}   (on that machine, as the login user)"
        )
    free_gb = shutil.disk_usage(existing(home)).free / 1e9
    if free_gb < params["disk_gb"]:
        findings.append(
            f"{free_gb:.1f} GB are free below {home}, a model and its checkpoints want {params['disk_gb']:g}\n"
            "fix: make room (sudo du -xhd1 / | sort -h), or set motley_workspace_disk_gb lower"
        )
    return findings


def mine(path: Path) -> bool:
    return path.is_dir() and path.stat().st_uid == os.geteuid() and os.access(path, os.W_OK | os.X_OK)


def make(home: Path, params: Make, *, pretend: bool) -> Done:
    missing = [path for name in params["folders"] for path in missing_folders(home / name)]
    missing = list(dict.fromkeys(missing))
    package = params["package"]
    was, now = target(home / "code"), f"code.{package['hash']}" if package else ""
    renew = bool(package) and not in_place(home, now)
    if not pretend and (missing or renew):
        for path in missing:
            path.mkdir(exist_ok=True)
        with one_at_a_time(home):
            if missing:
                remember(home, missing)
            if package and not in_place(home, now):  # another launch may have brought it meanwhile
                unpack(home, now, package)
    lines_before = [was] if was and renew else []
    lines_after = [str(path) for path in missing] + ([now] if renew else [])
    say = f"train {package['hash']}" if package else "there is no training package in this checkout"
    return {
        "changed": bool(missing or renew),
        "motley_say": say,
        "diff": difference(home, *("".join(f"{line}\n" for line in lines) for lines in (lines_before, lines_after))),
    }


def missing_folders(path: Path) -> list[Path]:
    """Itself and its parents as far as they are not there, outermost first."""
    return [folder for folder in [*reversed(path.parents), path] if not folder.exists()]


def in_place(home: Path, code: str) -> bool:
    return target(home / "code") == code and intact(home / code)


@contextmanager
def one_at_a_time(home: Path) -> Iterator[None]:
    """Two launches at once would write and remove the same files."""
    with (home / LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def intact(folder: Path) -> bool:
    """Whether the code is as it was unpacked: its list of sizes is kept beside it."""
    known = read_json(folder / ".motley-files.json")
    return bool(known) and bool(known == sizes(folder))


def sizes(folder: Path) -> dict[str, list[int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and not path.name.startswith(".motley-"):
            found[str(path.relative_to(folder))] = [path.stat().st_size, int(path.stat().st_mtime)]
    return found


def unpack(home: Path, name: str, package: Package) -> None:
    folder, new = home / name, home / f".{name}.new"
    shutil.rmtree(new, ignore_errors=True)
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(package["archive"]))) as archive:
        for entry in archive:  # plain files only; Debian 12's tarfile has no filters yet
            path = new / entry.name
            path.parent.mkdir(parents=True, exist_ok=True)
            content = archive.extractfile(entry)
            assert content
            path.write_bytes(content.read())
    (new / ".motley-files.json").write_text(json.dumps(sizes(new)))
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    point(home / "code", name)
    versions = sorted(home.glob("code.*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in [path for path in versions if path != folder][KEEP - 1 :]:
        shutil.rmtree(old)


def remember(home: Path, made: list[Path]) -> None:
    record = home / RECORD
    before = json.loads(record.read_text()) if record.exists() else []
    paths = [*before, *(str(path) for path in made if str(path) not in before)]
    write_atomic(record, json.dumps(paths).encode())


def remove(home: Path, *, pretend: bool) -> Done:
    """The code goes, and a secret that a launch brought; of the folders that were made those that are empty."""
    record = home / RECORD
    code = [home / "code", *home.glob("code.*"), *home.glob(".code.*")]
    ours = [path for path in [*code, record, home / SECRET] if os.path.lexists(path)]
    if not ours:
        return {"changed": False, "motley_say": "nothing to put back"}
    kept = []
    if not pretend:
        made = [Path(name) for name in json.loads(record.read_text())] if record.exists() else []
        for path in ours:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        for folder in sorted(made, key=lambda path: len(path.parts), reverse=True):
            with suppress(FileNotFoundError):
                try:
                    folder.rmdir()
                except OSError:
                    kept.append(folder)
    return {"changed": True, "motley_say": kept_words(home, kept) if kept else "all of it is gone"}


def kept_words(home: Path, kept: list[Path]) -> str:
    """Folders in others that are named say nothing more."""
    outermost = sorted(path.name for path in kept if path.parent == home)
    if not outermost:
        return f"{home} kept, for there is something in it"
    return f"{home}: {', '.join(outermost)} kept, for there is something in {'them' if outermost[1:] else 'it'}"


if __name__ == "__main__":
    main()
