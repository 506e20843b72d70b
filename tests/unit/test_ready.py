"""Bootstrapped hosts are kept for this state of the code and this base, and for no other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import ready


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
