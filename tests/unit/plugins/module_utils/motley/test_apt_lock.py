"""Who holds apt's lock, whatever its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plugins.module_utils.motley import apt_lock

HOLDS = """
import fcntl, sys
open("/proc/self/comm", "wb").write(bytes.fromhex(sys.argv[2]))
lock = open(sys.argv[1], "r+b")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(("name", "shown"), [("6170742d676574", "apt-get"), ("d0bcd0", "м\ufffd")])
def test_the_program_that_holds_it_is_named(
    name: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = tmp_path / "lock"
    lock.touch()
    monkeypatch.setattr(apt_lock, "LOCKS", (str(tmp_path / "none"), str(lock)))
    assert apt_lock.holder() == ""
    command = [sys.executable, "-c", HOLDS, str(lock), name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout and process.stdout.readline() == b"held\n"
        assert apt_lock.holder() == f"{shown} (process {process.pid})"
        process.communicate()
