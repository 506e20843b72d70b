"""fp16's gradients: one that overflows is a step that is skipped; where all do, nothing is trained."""

import pytest
import torch

from tests.train import cluster
from train.engine import loop
from train.engine.run import train_run
from train.errors import CheckFailed
from train.plan.settings.read_settings import load_config


def test_a_run_of_which_every_gradient_overflows_ends_and_says_so(tmp_path, monkeypatch):
    """Its scale has fallen from 65536 to below 1, where no gradient could be too small any more."""
    data, compute = cluster.make_rows(tmp_path / "data", 8, 0), loop.compute

    def overflows(run, mine, weight):
        done = compute(run, mine, weight)
        run.trained.parameters[0].grad.fill_(torch.inf)
        return done

    monkeypatch.setattr(loop, "compute", overflows)
    settings = {"model": "tiny", "precision": "fp16", "lora_r": 2, "rows_per_step": 1, "max_steps": 40}
    settings |= {"dataset": data, "home": tmp_path}
    with pytest.raises(CheckFailed, match="step 18: LossNotFiniteError: the gradient is not finite"):
        train_run(load_config({name: str(value) for name, value in settings.items()}), None)
