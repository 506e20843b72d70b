"""nvidia-smi's tables. Standard library alone: nodes get it."""

from __future__ import annotations

import shutil
import subprocess

BAD_INFOROM = 14
"""The exit code where it warns of a card that computes all the same: its infoROM is corrupted."""


class Silent(Exception):
    """Why it showed no table."""


class NotInstalled(Silent):
    pass


def table(what: str, fields: list[str], timeout_s: float = 15) -> list[dict[str, str]]:
    """A row for each GPU (`what`: gpu) or for each program on one (compute-apps)."""
    program = shutil.which("nvidia-smi")
    if program is None:
        raise NotInstalled("nvidia-smi is not installed")
    command = [program, f"--query-{what}={','.join(fields)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)
    except subprocess.TimeoutExpired:
        raise Silent(f"nvidia-smi gave no answer within {timeout_s:g} s") from None
    except OSError as broken:
        raise Silent(str(broken)) from None
    if done.returncode not in (0, BAD_INFOROM):
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise Silent(lines[0] if lines else "it gave no answer")
    rows = [[word.strip() for word in line.split(",")] for line in done.stdout.splitlines() if line.strip()]
    # A warning stands below the rows.
    return [dict(zip(fields, row)) for row in rows if len(row) >= len(fields)]  # noqa: B905  Python 3.9 has no strict=
