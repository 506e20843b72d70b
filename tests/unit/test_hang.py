"""A test that hangs is a failure that says where each thread is, not a run that somebody has to kill."""

from pathlib import Path

import pytest

from tests.support import pytest_alone


def test_it_fails_with_each_threads_place_and_the_next_one_runs_and_a_long_one_has_longer(tmp_path: Path) -> None:
    ended = pytest_alone.run(
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


def test_the_end_of_one_that_has_failed_may_hang_too(tmp_path: Path) -> None:
    ended = pytest_alone.run(
        tmp_path,
        "import threading\n"
        "import pytest\n\n"
        "@pytest.fixture\n"
        "def waits():\n"
        "    yield\n"
        "    threading.Event().wait()\n\n"
        "def test_fails(waits): assert not 'this'\n\n"
        "def test_next(): pass\n",
        "timeout=1",
    )
    assert "1 failed, 1 passed, 1 error" in ended.stdout, ended


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


def test_the_limits(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) == 900
