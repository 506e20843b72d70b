"""The wheels of locked sets, fetched once and kept on the controller: wheelhouse.py [--id] PYTHON SET [SET…]

    .venv/bin/python requirements/wheelhouse.py 3.12 node-gpu unsloth

Prints JSON: the folder, its id (a hash of the locks and the Python), and name, size and SHA-256 of every wheel.
What is in the cache is read again each time; a wheel that is no longer what was fetched is removed and fetched again.
--id prints the id alone and touches nothing. The cache is $MOTLEY_CACHE or ~/.cache/motley.
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

HERE = Path(__file__).parent
BESIDE = {"node-cpu": ["torch-cpu"]}  # see fetch_wheels.py
LIST = "WHEELS.json"


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--id", action="store_true")
    asked.add_argument("python")
    asked.add_argument("sets", nargs="+")
    args = asked.parse_args()
    try:
        name = lock_id(args.python, args.sets)
    except FileNotFoundError as wrong:
        print(f"there is no locked set {Path(wrong.filename).stem} in {HERE}", file=sys.stderr)
        return 2
    if args.id:
        print(name)
        return 0
    folder = Path(os.environ.get("MOTLEY_CACHE") or Path.home() / ".cache/motley") / "wheels" / name
    try:
        files, fetched = ensure(folder, args.python, args.sets)
    except subprocess.CalledProcessError as wrong:
        print(explain(wrong.stderr or "", args.python, args.sets), file=sys.stderr)
        return 1
    print(json.dumps({"id": name, "folder": str(folder), "fetched": fetched, "files": files}))
    return 0


def lock_id(python: str, sets: list[str], locks: Path = HERE) -> str:
    """Changes with any lock, with the Python and with the processor; nothing else."""
    digest = hashlib.sha256(f"{python} {platform.machine()}\n".encode())
    for name in [part for entry in sets for part in [entry, *BESIDE.get(entry, [])]]:
        digest.update((locks / f"{name}.txt").read_bytes())
    return digest.hexdigest()[:12]


def ensure(folder: Path, python: str, sets: list[str]) -> tuple[dict[str, Any], bool]:
    """The wheels' facts, and whether anything had to be fetched."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if files := intact(folder):
            return files, False
        unfinished = folder.with_name(f"{folder.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        fetch = [sys.executable, str(HERE / "fetch_wheels.py"), str(unfinished), python, *sets]
        subprocess.run(fetch, check=True, capture_output=True, text=True)
        files = {path.name: facts(path) for path in sorted(unfinished.glob("*.whl"))}
        (unfinished / LIST).write_text(json.dumps(files, indent=1) + "\n")
        shutil.rmtree(folder, ignore_errors=True)
        unfinished.rename(folder)
        return files, True


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


def explain(said: str, python: str, sets: list[str]) -> str:
    """pip's words, and what mends it."""
    lines = [line for line in said.splitlines() if "ERROR" in line] or said.splitlines()[-2:]
    what = f"the wheels of {', '.join(sets)} for Python {python} could not be fetched: {' '.join(lines)[:300]}"
    if "for torch==" in said and "+cpu" in said:
        return (
            f"there is no CPU build of torch for Python {python} at hand\n"
            "fix: can the controller reach its package index? A wheel of your own: PIP_FIND_LINKS=FOLDER, then again"
        )
    if "No space left on device" in said:
        return (
            f"the disk is full: the wheels of {', '.join(sets)} for Python {python} could not be kept\n"
            "fix: make room in MOTLEY_CACHE (~/.cache/motley) and in the folder for temporary files (df -h), then again"
        )
    if "DO NOT MATCH THE HASHES" in said:
        return f"{what}\nfix: a download differs from its lock: try again; if it stays so, do not install it"
    return f"{what}\nfix: the controller needs its package index once (pip config list; network?), then run again"


if __name__ == "__main__":
    sys.exit(main())
