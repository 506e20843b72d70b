"""unsloth's own CPU backend behind ours. Optional: it runs where unsloth is installed (requirements/unsloth.txt)."""

import importlib.util

import pytest

from tests.train import cluster

needs_unsloth = pytest.mark.skipif(importlib.util.find_spec("unsloth") is None, reason="unsloth is not installed")


@needs_unsloth
def test_unsloth_and_hf_give_the_same_losses(tmp_path, monkeypatch):
    """On packed rows, several at a time, over two unequal processes."""
    data = cluster.make_rows(tmp_path / "data", 20, 2)
    options = {"model": "tiny", "dataset": data, "max_steps": 6, "rows_per_step": 6, "lora_r": 8, "shares": "2,1"}
    options |= {"learning_rate": 5e-3, "warmup_steps": 1}
    hf = cluster.train(tmp_path / "hf", {**options, "backend": "hf"}, 2, cold=True)
    monkeypatch.setenv("UNSLOTH_FORCE_CPU", "1")
    unsloth = cluster.train(tmp_path / "unsloth", {**options, "backend": "unsloth"}, 2, cold=True)
    assert unsloth.events()[0]["decisions"]["backend"] == "unsloth"
    assert unsloth.losses() == pytest.approx(hf.losses(), rel=1e-4)
