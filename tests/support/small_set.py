"""A locked set of a few small packages, in a folder like requirements/: all that is to be shown, in seconds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.cluster import REPOSITORY

PACKAGES = ("pip", "pyyaml", "tqdm", "idna")


def make(folder: Path, packages: tuple[str, ...] = PACKAGES) -> Path:
    """The entries of node-cpu.txt for these packages as set `small`, with the programs that read it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("wheelhouse.py", "fetch_wheels.py", "uv.txt"):
        shutil.copy(REPOSITORY / "requirements" / name, folder / name)
    lock = (REPOSITORY / "requirements/node-cpu.txt").read_text()
    entries = re.findall(r"^\S.*?(?=^\S|\Z)", lock, re.MULTILINE | re.DOTALL)
    chosen = [entry for entry in entries if entry.split("==")[0] in packages]
    (folder / "small.txt").write_text("".join(chosen))
    return folder


def fetch(folder: Path, python: str, cache: Path) -> str:
    """As a controller with a network does it, once; returns the lock's id."""
    command = [sys.executable, str(folder / "wheelhouse.py")]
    environment = os.environ | {"MOTLEY_CACHE": str(cache)}
    subprocess.run([*command, python, "small", "uv"], check=True, env=environment, capture_output=True)
    done = subprocess.run([*command, "--id", python, "small"], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def why_not_fetched(python: str, wanted: str = "node-cpu") -> str:
    """Fetches a whole set into the controller's own cache; a reason where that cannot be."""
    command = [sys.executable, str(REPOSITORY / "requirements/wheelhouse.py"), python, wanted, "uv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr.strip().splitlines()[0] if done.returncode else ""
