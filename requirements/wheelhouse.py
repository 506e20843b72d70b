"""The wheels of locked sets, fetched once and kept on the controller: wheelhouse.py [OPTIONS] PYTHON SET [SET…]

    .venv/bin/python requirements/wheelhouse.py --machine=aarch64 3.12 node-gpu unsloth

Prints JSON: the folder, its id (a hash of locks, Python and processor), and name, size and SHA-256 of every wheel.
What is in the cache is read again each time; a wheel that is no longer what was fetched is removed and fetched again.
--id prints the id alone and touches nothing. The cache is $MOTLEY_CACHE or ~/.cache/motley.
The set `uv`, which installs the others, is fetched by itself and has no part in their id.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from requirements.fetch_wheels import UNHASHED

HERE = Path(__file__).parent
LIST = "WHEELS.json"
UV = ("uv",)


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--id", action="store_true")
    asked.add_argument("--machine", default=platform.machine(), help="the processor that they are for")
    asked.add_argument("python")
    asked.add_argument("sets", nargs="+")
    args = asked.parse_args()
    apart = [[name for name in args.sets if (name in UV) is wanted] for wanted in (False, True)]
    parts = [sets for sets in apart if sets]
    try:
        ids = [lock_id(args.python, sets, machine=args.machine) for sets in parts]
    except FileNotFoundError as wrong:
        print(f"there is no locked set {Path(wrong.filename).stem} in {HERE}", file=sys.stderr)
        return 2
    if args.id:
        print(ids[0])
        return 0
    cache = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley") / "wheels"
    folders = [cache / name for name in ids]
    try:
        kept = [ensure(folder, args.python, args.machine, sets) for folder, sets in zip(folders, parts, strict=True)]
    except subprocess.CalledProcessError as wrong:
        print(explain(wrong.stderr or "", args.python, args.sets), file=sys.stderr)
        return 1
    for folder, (files, _) in zip(folders[1:], kept[1:], strict=True):
        lay_beside(folder, folders[0], files)
    files = {name: facts for files, _ in kept for name, facts in files.items()}
    fetched = any(fetched for _, fetched in kept)
    print(json.dumps({"id": ids[0], "folder": str(folders[0]), "fetched": fetched, "files": files}))
    return 0


def lock_id(python: str, sets: list[str], locks: Path = HERE, machine: str = platform.machine()) -> str:
    """Changes with any lock, with the Python and with the processor; nothing else."""
    digest = hashlib.sha256(f"{python} {machine}\n".encode())
    for name in [part for entry in sets for part in (entry, UNHASHED.get(entry)) if part]:
        digest.update((locks / f"{name}.txt").read_bytes())
    return digest.hexdigest()[:12]


def ensure(folder: Path, python: str, machine: str, sets: list[str]) -> tuple[dict[str, Any], bool]:
    """The wheels' facts, and whether anything had to be fetched."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if files := intact(folder):
            return files, False
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        fetch = [sys.executable, str(HERE / "fetch_wheels.py"), f"--machine={machine}", str(unfinished), python, *sets]
        subprocess.run(fetch, check=True, capture_output=True, text=True)
        files = {path.name: facts(path) for path in sorted(unfinished.glob("*.whl"))}
        (unfinished / LIST).write_text(json.dumps(files, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        return files, True


def lay_beside(source: Path, folder: Path, files: dict[str, Any]) -> None:
    """Nodes get their wheels from one folder."""
    for name in files:
        if (folder / name).exists() and (folder / name).samefile(source / name):
            continue
        new = folder / f".{name}.{os.getpid()}"
        try:
            os.link(source / name, new)
        except OSError:  # a file system without hard links
            shutil.copyfile(source / name, new)
        new.replace(folder / name)


def intact(folder: Path) -> dict[str, Any]:
    """What the cache holds, if all of it still has the hash it was fetched with; else nothing."""
    try:
        files: dict[str, Any] = json.loads((folder / LIST).read_text())
        good = all(facts(folder / name) == known for name, known in files.items())
    except (OSError, ValueError):
        return {}
    return files if good else {}


def facts(path: Path) -> dict[str, Any]:
    with path.open("rb") as stream:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(stream, "sha256").hexdigest()}


def explain(output: str, python: str, sets: list[str]) -> str:
    """pip's words, and what fixes it."""
    lines = [line for line in output.splitlines() if "ERROR" in line] or output.splitlines()[-2:]
    what = f"the wheels of {', '.join(sets)} for Python {python} could not be fetched: {' '.join(lines)[:300]}"
    if "for torch==" in output and "+cpu" in output:
        return (
            f"there is no CPU build of torch for Python {python} at hand\n"
            "fix: can the controller reach its package index? A wheel of your own: PIP_FIND_LINKS=FOLDER, then again"
        )
    if "No space left on device" in output:
        return (
            f"the disk is full: the wheels of {', '.join(sets)} for Python {python} could not be kept\n"
            "fix: make room in MOTLEY_CACHE (~/.cache/motley) and in the folder for temporary files (df -h), then again"
        )
    if "DO NOT MATCH THE HASHES" in output:
        return f"{what}\nfix: a download differs from its lock: try again; if it stays so, do not install it"
    return f"{what}\nfix: the controller needs its package index once (pip config list; network?), then run again"


if __name__ == "__main__":
    sys.exit(main())
