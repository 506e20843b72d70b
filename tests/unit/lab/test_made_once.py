"""What labs stand on is made by one of them, and is whole or not there."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lab.made_once import filling


def test_of_several_at_once_one_makes_it_and_the_others_wait_for_it(tmp_path: Path) -> None:
    folder, began = tmp_path / "cache/base", threading.Barrier(4)
    made = []

    def needs_it(number: int) -> str:
        began.wait(10)
        with filling(folder) as unfinished:
            if unfinished:
                made.append(number)
                (unfinished / "system").write_text("half")
                assert not folder.exists()
                (unfinished / "system").write_text("whole")
        return (folder / "system").read_text()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(needs_it, range(4))) == ["whole"] * 4
    assert len(made) == 1
    assert sorted(path.name for path in folder.parent.iterdir()) == ["base", "base.lock"]


def test_what_fails_leaves_nothing_and_is_made_by_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "base"
    with pytest.raises(OSError, match="no mirror"), filling(folder):
        raise OSError("no mirror")
    assert [path.name for path in tmp_path.iterdir()] == ["base.lock"]
    with filling(folder) as unfinished:
        assert unfinished
    with filling(folder) as unfinished:
        assert unfinished is None
