"""A run that the code of an earlier commit began and stopped, as a node kept it (tests/kept): this code resumes it."""

import json
import shutil
from pathlib import Path

import pytest

from tests.train import cluster

KEPT = Path(__file__).parents[1] / "kept/run-67676e9"


def test_a_run_begun_at_67676e9_is_resumed_and_ends_with_the_loss_it_would_have_had_there(tmp_path):
    shutil.copytree(KEPT / "node-0", tmp_path / "node-0")
    settings = json.loads((KEPT / "settings.json").read_text())
    options = settings["options"] | {"model": KEPT / "base", "dataset": KEPT / "data"}
    run = cluster.train(tmp_path, options)
    assert "resumed at step 12" in run.said()
    assert [event["step"] for event in run.steps()] == list(range(1, 41))
    assert run.losses()[-1] == pytest.approx(settings["loss_there"], abs=1e-4)
    assert (tmp_path / "node-0/results/run/adapter/adapter_model.safetensors").exists()
