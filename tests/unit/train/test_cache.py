"""What is made once for a machine is made by one of those that need it, and is whole or not there."""

import threading
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from train.cache import build_once


def test_of_several_at_once_one_makes_it_and_the_others_wait_for_it(tmp_path):
    folder, began = tmp_path / "cache/base", threading.Barrier(4)
    made = []

    def make(unfinished):
        made.append(unfinished)
        (unfinished / "system").write_text("half")
        assert not folder.exists()
        (unfinished / "system").write_text("whole")

    def needs_it(_):
        began.wait(10)
        return (build_once(folder, make) / "system").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(needs_it, range(4))) == ["whole"] * 4
    assert len(made) == 1


def test_what_fails_leaves_nothing_and_is_made_by_the_next(tmp_path):
    with pytest.raises(OSError, match="no mirror"):
        build_once(tmp_path / "base", Mock(side_effect=OSError("no mirror")))
    assert [path.name for path in tmp_path.iterdir()] == [".base.lock"]
    assert build_once(tmp_path / "base", lambda folder: (folder / "system").touch()).is_dir()
