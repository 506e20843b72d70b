"""selftest: every part of training on one machine, a line each, and an exit code that says no when one fails."""

import json
import subprocess
import sys

import pytest

from tests.train import cluster
from train import checkpoint
from train.__main__ import main
from train.backends import hf

CHECKS = ["versions", "device and memory", "model load", "forward", "backward", "optimizer step", "save and reload"]


def test_a_good_machine_gets_a_tick_a_line(capsys):
    assert main(["selftest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2:19].rstrip() for line in lines] == CHECKS
    assert all(line.startswith("✓ ") for line in lines)


def test_a_base_in_4_bit_has_as_many_weights_and_nothing_else_is_said():
    """On a processor with AVX512-BF16 bitsandbytes asks for a package that no run has a use for."""
    command = [sys.executable, "-m", "train", "selftest", "--load-in", "4bit"]
    done = subprocess.run(
        command, env=cluster.environment(), cwd=cluster.ROOT, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert [line[2:19].rstrip() for line in done.stdout.splitlines()] == CHECKS
    assert "tiny, 1.2 M weights, 0.16 M trained" in done.stdout.splitlines()[2]


def nan_loss(monkeypatch):
    loss_sum = hf.loss_sum
    monkeypatch.setattr(hf, "loss_sum", lambda model, batch: loss_sum(model, batch) * float("nan"))


def frozen(monkeypatch):
    monkeypatch.setattr(hf, "loss_sum", lambda model, batch: sum(p.sum() for p in model.parameters()) * 0 + 5)


def lossy_disk(monkeypatch):
    load = checkpoint.load_file
    monkeypatch.setattr(checkpoint, "load_file", lambda file: {k: v * 1.001 for k, v in load(file).items()})


@pytest.mark.parametrize(
    ("harm", "failing", "why"),
    [
        (nan_loss, "forward", "the loss is nan"),
        (frozen, "backward", "the gradient's norm is 0"),
        (lossy_disk, "save and reload", "not those that were saved"),
    ],
)
def test_what_fails_is_named_with_the_reason(harm, failing, why, monkeypatch, capsys):
    harm(monkeypatch)
    assert main(["selftest", "--json"]) == 1
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["ok"] is False and [c["check"] for c in result["checks"]] == CHECKS[: CHECKS.index(failing)]
    assert result["failures"][0].startswith(failing) and why in result["failures"][0]
    assert f"✗ {failing}" in captured.err


def test_a_machine_without_a_gpu_says_so(capsys):
    assert main(["selftest", "--device", "cuda"]) == 1
    assert "has no usable GPU" in capsys.readouterr().out
