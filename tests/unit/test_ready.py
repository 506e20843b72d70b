"""Bootstrapped hosts are made once for each state of the code, and only a few states stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import ready


def asked_for(key: str, monkeypatch: pytest.MonkeyPatch, made: list[str]) -> Path:
    def make(suite: str, folder: Path) -> None:
        made.append(key)
        (folder / "gpu-master").mkdir(parents=True)

    monkeypatch.setattr(ready, "_key", lambda suite: f"{suite}-{key}")
    return ready.ensure("bookworm", make)


def test_each_state_is_made_once_and_the_oldest_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "CACHE", tmp_path)
    made: list[str] = []
    for age, key in enumerate(["a", "b", "c", "d", "e"]):
        os.utime(asked_for(key, monkeypatch, made), (age, age))
    assert asked_for("b", monkeypatch, made).joinpath("gpu-master").exists()
    assert made == ["a", "b", "c", "d", "e"]
    assert sorted(path.name[-1] for path in tmp_path.glob("ready-*")) == ["b", "c", "d", "e"]


def test_what_was_cut_short_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ready, "CACHE", tmp_path)
    monkeypatch.setattr(ready, "_key", lambda suite: suite)

    def cut_short(suite: str, folder: Path) -> None:
        (folder / "half").mkdir(parents=True)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ready.ensure("bookworm", cut_short)
    made: list[str] = []
    there = asked_for("now", monkeypatch, made)
    assert made == ["now"] and [path.name for path in there.iterdir()] == ["gpu-master"]


def test_the_code_and_the_base_decide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for top in (*ready.DECIDES, "tests/support"):
        (tmp_path / top).mkdir(parents=True)
    for name in ("bootstrap", "ready"):
        (tmp_path / f"tests/support/{name}.py").touch()
    monkeypatch.setattr(ready, "REPOSITORY", tmp_path)
    keys = [ready._key("bookworm"), ready._key("trixie")]
    for file in ("roles/motley_run/tasks/main.yml", "train/agent.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("first")
        keys.append(ready._key("bookworm"))
        (tmp_path / file).write_text("second")
        keys.append(ready._key("bookworm"))
    assert len(set(keys)) == len(keys)
    (tmp_path / "console/__pycache__").mkdir()
    (tmp_path / "console/__pycache__/a.pyc").touch()
    assert ready._key("bookworm") == keys[-1]
