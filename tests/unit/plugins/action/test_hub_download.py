"""What is fetched from the hub is shown as it comes, and answered however long the answer is."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from plugins.action import hub_download
from tests.support.stand_ins import program

FETCH = """#!/usr/bin/env python3
import json, sys
print("300 of 600 files · 12 MB/s", file=sys.stderr, flush=True)
files = {f"train/{number:05}.parquet": {"size": 1, "sha256": "0" * 64} for number in range(2000)}
print(json.dumps({"ok": True, "folder": "/there", "files": files}), flush=True)
"""


@pytest.mark.timeout(60)
def test_a_data_set_of_many_files_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", FETCH)))
    shown: list[str] = []
    action: Any = SimpleNamespace(_token={}, _display=SimpleNamespace(display=shown.append))
    fetched = hub_download.ActionModule._fetch(action, ["fetch", "--dataset", "some/photos"], "some/photos")
    assert fetched["folder"] == "/there" and len(fetched["files"]) == 2000
    assert shown == ["  300 of 600 files · 12 MB/s"]
