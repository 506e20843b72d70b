"""`./motley check-rewards REWARDS [DATASET]`: rewards tried on some rows, on this machine, without a launch."""

from __future__ import annotations

import subprocess
import sys

from console.check_model import ENVIRONMENTS
from train.errors import BadInput


def check_rewards(*, rewards: str, dataset: str, rows: str, as_json: bool) -> int:
    if not rewards:
        raise BadInput(
            "name the rewards", fix="./motley check-rewards ./rewards.py sums.jsonl, or exact, number, json …"
        )
    nodes = [file for folder in ENVIRONMENTS if (file := folder / "bin/python").exists()]
    python = str([*nodes, sys.executable][0])  # a node's has what a function may import; Motley's own need nothing
    options = {"--rewards": rewards, "--dataset": dataset, "--rows": rows}
    words = [f"{name}={value}" for name, value in options.items() if value]
    command = [python, "-m", "train", "check-rewards", *words, *(["--json"] if as_json else [])]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
