"""What nvidia-smi prints of odd cards, as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stand_ins import program
from train import nvidia_smi

GOOD = "NVIDIA GeForce RTX 4070, 12282"
WARNING = "WARNING: infoROM is corrupted at gpu 0000:B3:00.0"


def prints(text: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(folder / "nvidia-smi", f"#!/bin/sh\ncat <<'EOF'\n{text}\nEOF\nexit {code}\n")
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.parametrize("code", [0, 14])
def test_a_card_that_it_only_warns_of_is_a_card(code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints(f"{GOOD}\n{WARNING}", code, tmp_path, monkeypatch)
    rows = nvidia_smi.table("gpu", ["name", "memory.total"])
    assert rows == [{"name": "NVIDIA GeForce RTX 4070", "memory.total": "12282"}]


def test_where_it_fails_its_words_are_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prints("Failed to initialize NVML: Driver/library version mismatch", 18, tmp_path, monkeypatch)
    with pytest.raises(nvidia_smi.Silent, match="version mismatch"):
        nvidia_smi.table("gpu", ["name"])
