"""What of apt's refusals is waited for, and who holds its lock, whatever its name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from plugins.module_utils.motley import apt, apt_lock

LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)"
DIRECTORY = "E: Unable to lock directory /var/lib/apt/lists/"
BLOCKED = "E: Failed to fetch http://deb.example/dists/stable/InRelease  403  Blocked by the proxy"


@pytest.mark.parametrize(("refusal", "waits"), [(LOCKED, True), (DIRECTORY, True), (BLOCKED, False)])
def test_the_lists_are_asked_for_again_only_while_another_program_has_them(
    refusal: str, waits: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[tuple[str, ...]] = []

    def runs(*command: str) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        return subprocess.CompletedProcess(command, 100 if len(asked) < 3 else 0, "", refusal)

    monkeypatch.setattr(apt, "RUN", tmp_path)
    monkeypatch.setattr(apt.Apt, "_run", staticmethod(runs))
    monkeypatch.setattr(apt.time, "sleep", lambda _: None)
    assert apt.Apt().refresh() == ("" if waits else BLOCKED.removeprefix("E: "))
    assert len(asked) == (3 if waits else 1)


def test_what_a_packages_script_prints_in_another_encoding_is_no_failure_of_apt() -> None:
    done = apt.Apt._run("printf", r"Setting up m\374ller (1) ...\n")
    assert (done.returncode, done.stdout) == (0, "Setting up m\ufffdller (1) ...\n")


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
