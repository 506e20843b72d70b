"""A test that hangs is a failure that says where each thread is, not a run that somebody has to kill."""

from pathlib import Path

from tests.support import pytest_alone


def test_one_that_hangs_fails_with_each_threads_place_and_the_next_one_runs(tmp_path: Path) -> None:
    """So does one whose end hangs after it has failed, for which pytest-timeout has no clock any more."""
    ended = pytest_alone.run(
        tmp_path,
        "import threading, time\n"
        "import pytest\n\n"
        "def waits_elsewhere(): threading.Event().wait()\n\n"
        "@pytest.fixture\n"
        "def waits():\n"
        "    yield\n"
        "    threading.Event().wait()\n\n"
        "def test_hangs():\n"
        "    threading.Thread(target=waits_elsewhere, daemon=True).start()\n"
        "    threading.Event().wait()\n\n"
        "def test_fails(waits): assert not 'this'\n\n"
        "@pytest.mark.long\n"
        "def test_has_longer(): time.sleep(1.5)\n",
        "timeout=1",
    )
    said = ended.stdout + ended.stderr
    assert "2 failed, 1 passed, 1 error" in said, said
    assert "Failed: Timeout" in said and "test_hangs" in said.partition("short test summary")[2]
    assert "in waits_elsewhere" in said


def test_one_that_heeds_no_signal_ends_the_process(tmp_path: Path) -> None:
    ended = pytest_alone.run(
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
