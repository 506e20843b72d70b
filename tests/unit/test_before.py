"""What was before a change is kept once, put back exactly, and never over somebody's own edits."""

import os
from pathlib import Path

from plugins.module_utils.before import BEGIN, Before, with_block, without_block, write_file
from plugins.module_utils.preflight import judge


def me() -> tuple[int, int]:
    return os.geteuid(), os.getegid()


def changed(before: Before, path: Path, text: str, mode: int = 0o644) -> None:
    before.keep(path)
    write_file(path, text, mode, me())
    before.wrote(path)


def test_files_come_back_with_content_and_mode(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "made/deep/new"
    old.write_text("before\n")
    old.chmod(0o640)
    changed(Before("phase", tmp_path / "b"), old, "after\n", 0o600)
    changed(Before("phase", tmp_path / "b"), new, "after\n")
    changed(Before("phase", tmp_path / "b"), old, "after again\n", 0o600)  # a later run keeps the true beginning
    assert Before("phase", tmp_path / "b").restore() == []
    assert (old.read_text(), old.stat().st_mode & 0o777) == ("before\n", 0o640)
    assert not (tmp_path / "made").exists()


def test_a_file_that_somebody_edited_is_left_to_them(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("before\n")
    before = Before("phase", tmp_path / "b")
    changed(before, path, "after\n")
    path.write_text("mine\n")
    assert "edited since" in before.restore()[0]
    assert path.read_text() == "mine\n"


def test_of_an_edited_file_with_our_block_only_the_block_goes(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("127.0.0.1 localhost\n")
    before = Before("phase", tmp_path / "b")
    changed(before, path, with_block(path.read_text(), "10.0.0.1 one"))
    path.write_text(path.read_text() + "10.0.0.9 mine\n")
    before.restore()
    assert path.read_text() == "127.0.0.1 localhost\n10.0.0.9 mine\n"


def test_a_block_is_written_once_and_the_dropped_line_goes() -> None:
    text = "127.0.0.1 localhost\n127.0.1.1\tdebian\n"
    once = with_block(text, "10.0.0.1 one\n", r"127\.0\.1\.1\s.*")
    assert with_block(once, "10.0.0.1 one\n", r"127\.0\.1\.1\s.*") == once
    assert once.count(BEGIN) == 1 and "127.0.1.1" not in once
    assert without_block(once) == "127.0.0.1 localhost\n"


GOOD = {
    "os": {"ID": "ubuntu", "VERSION_ID": "24.04", "PRETTY_NAME": "Ubuntu 24.04"},
    "wsl": False,
    "python": [3, 12, 3],
    "free_gb": {"home": 100.0, "system": 100.0},
    "places": {"home": "/home/anna", "system": "/var"},
    "apt_lock": "",
    "apt_waited_s": 0.0,
}


def test_a_good_node_has_no_findings() -> None:
    assert judge(GOOD, 20) == []


def test_all_that_stands_in_the_way_is_named() -> None:
    bad = GOOD | {
        "os": {"ID": "fedora", "PRETTY_NAME": "Fedora 43"},
        "wsl": True,
        "python": [3, 8, 1],
        "free_gb": {"home": 3.0, "system": 0.1},
        "apt_lock": "apt-get (process 7)",
    }
    assert len(judge(bad, 20)) == 6


def test_old_releases_are_refused_and_testing_is_not() -> None:
    assert judge(GOOD | {"os": {"ID": "ubuntu", "VERSION_ID": "20.04"}}, 0)
    assert not judge(GOOD | {"os": {"ID": "debian", "PRETTY_NAME": "Debian testing"}}, 0)
