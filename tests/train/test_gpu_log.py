"""Readings of the cards, from a program that answers as nvidia-smi does."""

import json
import os
import time
from pathlib import Path

import pytest

from tests.support import pace
from tests.support.stand_ins import program
from train.cluster.gpu_log import GpuReadings, read_gpus

SAYS = """#!/bin/sh
echo "0, NVIDIA GeForce RTX 4070 Laptop GPU, 71, 98, [N/A], 7011, 8188, 0x0000000000000004"
echo "1, NVIDIA GeForce RTX 3070 Ti, 64, 97, 211.5, 6900, 8192, 0x0000000000000000"
"""


def test_cards_are_read_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "nvidia-smi", SAYS)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    cards = GpuReadings(tmp_path / "gpu.jsonl", "desktop", every_s=0.05)
    kept = tmp_path / "gpu.jsonl"
    pace.until(lambda: kept.exists() and kept.read_text().count("\n") >= 2, 30, "no reading was kept", every_s=0.02)
    first = json.loads(kept.read_text().splitlines()[0])
    assert {k: v for k, v in first.items() if k != "time"} == {
        "event": "gpu", "node": "desktop", "celsius": 71.0, "watts": 211.5, "used_mb": 13911.0,
    }  # fmt: skip
    assert [card["index"] for card in cards.now] == ["0", "1"]
    assert cards.now[0]["power.draw"] == "[N/A]"


def test_a_program_that_fails_leaves_no_reading_until_it_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    smi = program(tmp_path / "nvidia-smi", '#!/bin/sh\necho "No devices were found"\n')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert read_gpus() == []
    smi.write_text("#!/bin/sh\nexit 9\n")
    cards = GpuReadings(tmp_path / "gpu.jsonl", "desktop", every_s=0.05)
    cards.now = [{"index": "0"}]
    pace.until(lambda: not cards.now, 30, "an old reading stays", every_s=0.02)
    program(tmp_path / "another", SAYS).replace(smi)  # it may be running: such a file cannot be written to
    pace.until(lambda: len(cards.now) == 2, 30, "it is not asked again", every_s=0.02)


def test_without_cards_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    cards = GpuReadings(tmp_path / "gpu.jsonl", "desktop", every_s=0.01)
    time.sleep(0.1)
    assert cards.now == [] and not (tmp_path / "gpu.jsonl").exists()
