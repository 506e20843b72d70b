"""A test that hangs is a failure that says where each thread is, not a run that somebody has to kill."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def child(folder: Path, source: str, *limits: str) -> subprocess.CompletedProcess[str]:
    file = folder / "test_a.py"
    file.write_text(source)
    pytest_alone = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider"]
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder)]
    command = [*pytest_alone, *settings, *(word for limit in limits for word in ("-o", limit)), str(file)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_it_fails_with_each_threads_place_and_the_next_one_runs_and_a_long_one_has_longer(tmp_path: Path) -> None:
    ended = child(
        tmp_path,
        "import threading, time\n"
        "import pytest\n\n"
        "def waits_elsewhere(): threading.Event().wait()\n\n"
        "def test_hangs():\n"
        "    threading.Thread(target=waits_elsewhere, daemon=True).start()\n"
        "    threading.Event().wait()\n\n"
        "def test_next(): pass\n\n"
        "@pytest.mark.long\n"
        "def test_long(): time.sleep(1.5)\n",
        "timeout=1",
    )
    said = ended.stdout + ended.stderr
    assert "1 failed, 2 passed" in said, said
    assert "Failed: Timeout" in said and "test_hangs" in said.partition("short test summary")[2]
    assert "in waits_elsewhere" in said


def test_one_that_heeds_no_signal_ends_the_process(tmp_path: Path) -> None:
    ended = child(
        tmp_path,
        "import ctypes\n\n"
        "def test_hangs():\n"
        "    mutex = ctypes.create_string_buffer(64)\n"
        "    for _ in range(2):\n"
        "        ctypes.CDLL(None).pthread_mutex_lock(mutex)\n",
        "timeout=1",
        "faulthandler_timeout=2",
    )
    assert ended.returncode == 1 and "in test_hangs" in ended.stderr, ended


def test_the_limits(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) == 900
