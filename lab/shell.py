"""Running programs, and the one kind of error that a person is meant to read."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

HANG_S = 600
"""The limit for what only has to end, on a busy machine too."""


class LabError(Exception):
    """What is wrong and what to do, in at most three lines; `code` becomes the exit status."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def run(*argv: str | Path, check: bool = True, stdin: str | None = None, timeout_s: float = HANG_S) -> str:
    """Run a program and return its standard output; a failure names the program and its message."""
    done = outcome(*argv, stdin=stdin, timeout_s=timeout_s)
    if check and done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise LabError(f"{_line(argv)} failed ({done.returncode}): {' / '.join(lines[-3:])}")
    return done.stdout


def fetch(what: str, *argv: str | Path, timeout_s: float) -> None:
    """Run a program that fetches packages: what fails there is mostly the network."""
    done = outcome(*argv, timeout_s=timeout_s)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        why = next((line for line in lines if line.startswith("E:")), lines[-1] if lines else "")
        fix = "sudo apt-get update says whether its mirror is reached (network? full disk: df -h); then again"
        raise LabError(f"{what}: {why[:200] or f'exit code {done.returncode}, and it printed nothing'}\nfix: {fix}")


def outcome(
    *argv: str | Path, stdin: str | None = None, timeout_s: float = HANG_S, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program and return everything it did, failed or not."""
    # A lab command that is killed takes the programs it started with it.
    words = ["setpriv", "--pdeathsig", "KILL", "--", *(str(word) for word in argv)]
    if not shutil.which(words[4]):
        raise LabError(f"{words[4]} is not installed. `python -m lab check` says what is missing.", code=2)
    try:
        return subprocess.run(
            words, check=False, input=stdin or "", capture_output=True, text=True, timeout=timeout_s, cwd=cwd
        )
    except subprocess.TimeoutExpired:
        raise LabError(f"{_line(argv)} did not end within {timeout_s:g} s") from None


def _line(argv: Sequence[str | Path]) -> str:
    text = " ".join(str(word) for word in argv)
    return text if len(text) <= 160 else text[:157] + "…"
