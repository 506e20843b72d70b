"""The file that takes a machine out of its run: written by whoever sits there, or by ./motley pause."""

import os

import pytest

from train import pause


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("2h", 7200), ("90m", 5400), ("1h30m", 5400), ("1 h 30 min\n", 5400), ("45s", 45), ("0.5h", 1800),
        ("", None), ("2", None), ("h", None), ("2h tomorrow", None), ("two hours", None), ("-2h", None), ("2x", None),
    ],
)  # fmt: skip
def test_times(text, found):
    assert pause.seconds(text) == found


def test_an_empty_file_lasts_and_one_with_a_time_ends_by_itself(tmp_path):
    file = tmp_path / "pause"
    assert pause.read(file, 0.0) is None
    file.touch()
    assert pause.read(file, 1e12) == pause.Pause()
    file.write_text("my game")
    assert pause.read(file, 1e12) == pause.Pause(), "what is no time lasts: better than no pause"
    file.write_text("2h\n")
    os.utime(file, (1000, 1000))
    assert pause.read(file, 1000) == pause.read(file, 8199) == pause.Pause(8200)
    assert pause.read(file, 8200) is None


def test_until_is_by_the_clock_of_the_machine(monkeypatch):
    monkeypatch.setenv("TZ", "UTC0")
    pause.time.tzset()
    assert pause.words(0, 0) == ""
    assert pause.words(18 * 3600, 3600) == "until 18:00"
    assert pause.words(3600 + 50, 3600) == "until 01:00:50"
    assert pause.words(30 * 3600, 3600) == "until Fri 06:00"
