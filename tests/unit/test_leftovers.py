"""A test that leaves something to the tests after it fails, and they do not meet it."""

from pathlib import Path

from tests.support import pytest_alone


def test_what_a_test_leaves_is_its_failure_and_is_put_back(tmp_path: Path) -> None:
    ended = pytest_alone.run(
        tmp_path,
        "import os, signal\n\n"
        "def here():\n"
        "    os.umask(now := os.umask(0o77))\n"
        "    return signal.getsignal(signal.SIGTERM), dict(os.environ), os.getcwd(), now\n\n"
        "BEFORE = here()\n\n"
        "def test_handler(): signal.signal(signal.SIGTERM, lambda *_: None)\n\n"
        "def test_new(): os.environ['NEW'] = 'left'\n\n"
        "def test_gone(): del os.environ['PATH']\n\n"
        "def test_folder(): os.chdir('/')\n\n"
        "def test_umask(): os.umask(0o55)\n\n"
        "def test_clean(monkeypatch, tmp_path):\n"
        "    assert here()[0::2] == BEFORE[0::2] and here()[3] == BEFORE[3]\n"
        "    assert 'NEW' not in os.environ and os.environ['PATH'] == BEFORE[1]['PATH']\n"
        "    monkeypatch.setenv('NEW', 'mine')\n"
        "    monkeypatch.chdir(tmp_path)\n",
    )
    assert "6 passed, 5 errors" in ended.stdout, ended.stdout
    assert "variable NEW: 'left', before None" in ended.stdout
