"""`./motley check-model NAME`: the proof of a plan, on this machine, where it can train (train/proof)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from console import hub
from console.text_layout import say
from train.cache import cache_dir
from train.errors import BadInput

ENVIRONMENTS = (Path("~/ai-cluster/env").expanduser(), cache_dir() / "envs/train")
"""Where this machine is a node, and that of the tests."""


def node_python() -> Path | None:
    """The Python of an environment on this machine that can train."""
    return next((python for folder in ENVIRONMENTS if (python := folder / "bin/python").exists()), None)


def check_model(*, model: str, as_json: bool) -> int:
    if not model:
        raise BadInput("name a model", fix="./motley check-model qwen3-4b, or a hub id or folder")
    if (python := node_python()) is None:
        raise BadInput(
            "this machine has no torch, which computes the miniature",
            fix="./motley plan --model NAME asks your first machine; or: "
            f"requirements/make_env.sh {ENVIRONMENTS[-1]} node-cpu",
        )
    if not as_json:
        say("trying a miniature of the model …")
    command = [str(python), "-m", "train", "check-model", "--model", model, *(["--json"] if as_json else [])]
    env = hub.environment() | {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}  # a miniature is too small to share
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL, env=env).returncode
