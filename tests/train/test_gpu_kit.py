"""`make test-gpu DEVICE=cpu`: every line that a CPU can measure passes in test-long, two of them here; the others are
judged on recorded figures. Which those are is fixed in tests/unit/test_gpu_kit.py."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from tests.gpu.line import Place
from tests.gpu.lines import LINES
from tests.support import ROOT, pace
from train.models import backends, hf

HAS_UNSLOTH = importlib.util.find_spec("unsloth") is not None
ALWAYS = {"exact-hf-16bit", "sigterm"}


@pytest.mark.parametrize("which", ["some", pytest.param("all", marks=pytest.mark.long)])
def test_every_line_passes_is_simulated_or_lacks_unsloth_alone(which: str, tmp_path: Path) -> None:
    lines = [
        name
        for name, line in LINES.items()
        if which == "all" or line.simulated or "unsloth" in line.needs or name in ALWAYS
    ]
    command = [sys.executable, "-m", "tests.gpu", "--device", "cpu", "--results", str(tmp_path)]
    done = pace.does(*command, "--lines", ",".join(lines), cwd=ROOT, limit_s=1100)
    told = [line.split() for line in done.stdout.splitlines() if not line.startswith("|")]
    states = {words[1]: words[0] for words in told if len(words) > 2 and words[1] in LINES}
    wanted = {
        name: "simulated" if line.simulated else "skipped" if "unsloth" in line.needs and not HAS_UNSLOTH else "passed"
        for name, line in LINES.items()
        if name in lines
    }
    assert states == wanted
    assert (tmp_path / "to-post.md").read_text().count("\n| ") == len(lines) + 1
    assert not [file.name for file in tmp_path.iterdir() if file.name.startswith(".")], "it left a folder behind"


def blind(model, batch):
    """As if packed samples were one text."""
    return LOSS_SUM(model, {**batch, "position_ids": torch.arange(batch["input_ids"].shape[1])[None]})


def cut(model, batch):
    """As a backend that cuts what is longer than it likes."""
    return LOSS_SUM(model, {name: values[:, :80] for name, values in batch.items()})


LOSS_SUM = hf.loss_sum


@pytest.mark.parametrize(("harm", "told"), [(blind, "packed = alone"), (cut, "of 293 target tokens trained")])
def test_a_backend_that_mixes_or_cuts_samples_fails_its_line(harm, told, tmp_path, monkeypatch):
    monkeypatch.setattr(hf, "loss_sum", harm)
    assert backends.get("hf").loss_sum is harm
    line = LINES["exact-hf-16bit"]
    place = Place(device="cpu", folder=tmp_path, shared=tmp_path, results=tmp_path)
    verdict = line.judge(json.loads(json.dumps(line.measure(place))))
    assert not verdict.passed and told in verdict.sentence
