"""The trio as its bootstrap leaves it: made once for each state of the code, and kept beside the lab's layers."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from lab import base
from lab import lab as labs
from lab.place import CACHE
from tests.support.bootstrap import Person, person_with_trio
from tests.support.cluster import REPOSITORY

PHASES = ("ssh_trust", "static_ip", "workspace", "run")
DECIDES = "ansible.cfg console inventory lab playbooks plugins requirements roles templates train".split()
"""Whatever a bootstrap is made of, and the hosts under it."""
STATES = 4
"""So many stay, for who goes to and fro between branches: some 50 MB each."""


def bootstrap(suite: str, folder: Path) -> None:
    with person_with_trio(f"r{os.getpid()}", "train", suite=suite) as person:
        person.writes()
        for phase in PHASES:
            person.bootstraps(phase=phase)
        labs.keep(person.cluster.lab, folder)
        shutil.copytree(person.state, folder / "state")


def ensure(suite: str) -> Path:
    """The folder of the hosts and of their controller's state; bootstrapped where nobody has yet."""
    folder = CACHE / f"ready-{_key(suite)}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "ready.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            unfinished = CACHE / "ready.unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            bootstrap(suite, unfinished)
            unfinished.rename(folder)
        os.utime(folder)
        for old in sorted(CACHE.glob("ready-*"), key=lambda path: path.stat().st_mtime)[:-STATES]:
            shutil.rmtree(old)
    return folder


def take_over(person: Person, folder: Path) -> None:
    """As the one who has bootstrapped them."""
    shutil.copytree(folder / "state", person.state)
    person.writes()


def _key(suite: str) -> str:
    digest = hashlib.sha256(str(base.locate(suite).root).encode())
    for top in (*DECIDES, *(f"tests/support/{name}.py" for name in ("bootstrap", "cluster", "ready"))):
        for file in sorted((REPOSITORY / top).rglob("*")) or [REPOSITORY / top]:
            if file.is_file() and "__pycache__" not in file.parts:
                digest.update(f"{file.relative_to(REPOSITORY)} ".encode() + file.read_bytes())
    return digest.hexdigest()[:12]


if __name__ == "__main__":
    print(ensure(base.default_suite()))
