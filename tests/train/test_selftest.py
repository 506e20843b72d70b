"""selftest: every part of training on one machine, a line each, and an exit code that says no when one fails."""

import contextlib
import json
import os
import subprocess
import sys
import types
from unittest.mock import Mock

import pytest

from tests.support import pace
from tests.train import cluster
from train.__main__ import main
from train.measure import selftest
from train.models import hf, weights

CHECKS = ["versions", "device and memory", "model load", "forward", "backward", "optimizer step", "save and reload"]


def test_a_good_machine_gets_a_tick_a_line(capsys):
    assert main(["selftest"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line[2:19].rstrip() for line in lines] == CHECKS
    assert all(line.startswith("✓ ") for line in lines)


def test_a_base_in_4_bit_has_as_many_weights_and_nothing_else_is_said():
    """On a processor with AVX512-BF16 bitsandbytes asks for a package that no run has a use for."""
    command = [sys.executable, "-m", "train", "selftest", "--load-in", "4bit"]
    done = pace.run(*command, env=cluster.environment(), cwd=cluster.ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line[2:19].rstrip() for line in done.stdout.splitlines()] == CHECKS
    assert "tiny, 1.2 M weights, 0.16 M trained" in done.stdout.splitlines()[2]


def nan_loss(monkeypatch):
    loss_sum = hf.loss_sum
    monkeypatch.setattr(hf, "loss_sum", lambda model, batch: loss_sum(model, batch) * float("nan"))


def frozen(monkeypatch):
    monkeypatch.setattr(hf, "loss_sum", lambda model, batch: sum(p.sum() for p in model.parameters()) * 0 + 5)


def lossy_disk(monkeypatch):
    load = weights.load_file
    monkeypatch.setattr(weights, "load_file", lambda file: {k: v * 1.001 for k, v in load(file).items()})


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


# -- the check "GPU kernel"; the kernel itself is tests/unsloth/test_gpu_kernel.py


@pytest.fixture
def two_gpus(monkeypatch, tmp_path):
    """A machine with gcc, headers and two GPUs, as far as selftest sees; `proven` lists where a kernel was to run."""
    for path in ("gcc", "Python.h"):
        (tmp_path / path).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(selftest.sysconfig, "get_paths", lambda scheme: {"include": str(tmp_path)})
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setattr("torch.cuda.get_device_name", lambda card: f"RTX {card}")
    proven = []
    kernels = types.SimpleNamespace(prove=proven.append, nothing_built=contextlib.nullcontext)
    monkeypatch.setitem(sys.modules, "train.measure.gpu_kernel", kernels)
    monkeypatch.setattr("train.measure.gpu_kernel", kernels, raising=False)
    return types.SimpleNamespace(proven=proven, kernels=kernels, tools=tmp_path)


def test_every_gpu_runs_a_kernel_before_a_model_is_loaded(two_gpus, monkeypatch, capsys):
    def device(bench, args):
        bench.facts = types.SimpleNamespace(device="cuda:0")
        return "cuda:0"

    monkeypatch.setattr(selftest, "device", device)
    assert main(["selftest"]) == 1  # as there is no such GPU in truth
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith(f"✓ GPU kernel        built by {two_gpus.tools}/gcc, runs on RTX 0, RTX 1")
    assert lines[3].startswith("✗ model load") and two_gpus.proven == ["cuda:0", "cuda:1"]


@pytest.mark.parametrize("gone", ["gcc", "Python.h"])
def test_what_a_kernel_is_built_with_and_is_not_there_is_named_with_the_fix(two_gpus, gone):
    (two_gpus.tools / gone).unlink()
    with pytest.raises(selftest.BadInput) as refused:
        selftest.kernel()
    what, fix = str(refused.value).splitlines()
    lacking = {"gcc": "no C compiler (gcc or clang)", "Python.h": f"no {two_gpus.tools}/Python.h"}[gone]
    assert what == f"there is {lacking}, which Triton builds kernels with" and two_gpus.proven == []
    packages = f"gcc libc6-dev libpython{sys.version_info[0]}.{sys.version_info[1]}-dev"
    here = os.uname().nodename
    assert fix == f"fix: ./motley bootstrap --phase gpu_driver; or on {here}: sudo apt install {packages}"


def test_a_compiler_that_fails_is_named(two_gpus):
    two_gpus.kernels.prove = Mock(side_effect=subprocess.CalledProcessError(1, ["gcc", "x.c"]))
    with pytest.raises(selftest.BadInput, match=r"gcc does not build what Triton needs: .*exit status 1"):
        selftest.kernel()
