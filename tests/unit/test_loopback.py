"""The cluster of folders: the same bootstrap without root, without SSH, and without touching the machine."""

import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
WATCHED = ["/etc/hosts", "/etc/hostname", "/etc/machine-id"]


def console(*words: str) -> subprocess.CompletedProcess[str]:
    """As an ordinary user where the tests run as root."""
    return subprocess.run(
        [sys.executable, "-m", "console", *words, "--inventory", "inventory/loopback"],
        cwd=REPOSITORY,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=120,
        check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("MOTLEY_")},
    )


def test_the_inventory_is_good_and_needs_no_login() -> None:
    done = console("check")
    assert done.returncode == 0, done.stderr
    assert [line.split()[1] for line in done.stdout.splitlines()[:3]] == ["127.0.0.1", "127.0.0.2", "127.0.0.3"]


def test_bootstrap_says_what_it_leaves_alone_and_changes_nothing() -> None:
    before = {path: Path(path).read_bytes() for path in WATCHED}
    done = console("bootstrap")
    assert done.returncode == 0, done.stdout + done.stderr
    for node in ("gpu-master", "gpu-worker-1", "gpu-worker-2"):
        said = next(line for line in done.stdout.splitlines() if line.startswith(node))
        assert "left_alone" in said and "everything stays as it is" in said
    assert len([line for line in done.stdout.splitlines() if line.startswith("gpu-")]) == 3
    assert "0 changes" in done.stdout and "password" not in done.stdout
    assert {path: Path(path).read_bytes() for path in WATCHED} == before
