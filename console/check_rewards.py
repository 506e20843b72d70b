"""`./motley check-rewards REWARDS [DATASET]`: rewards tried on some rows, on this machine, without a launch."""

from __future__ import annotations

import subprocess
import sys

from console.check_model import node_python
from train.errors import BadInput


def check_rewards(*, rewards: str, dataset: str, rows: int, as_json: bool) -> int:
    if not rewards:
        raise BadInput(
            "name the rewards", fix="./motley check-rewards ./rewards.py sums.jsonl, or exact, number, json …"
        )
    python = str(node_python() or sys.executable)  # a node's has what a function may import; Motley's own need nothing
    options = {"--rewards": rewards, "--dataset": dataset, "--rows": rows}
    words = [f"{name}={value}" for name, value in options.items() if value]
    command = [python, "-m", "train", "check-rewards", *words, *(["--json"] if as_json else [])]
    return subprocess.run(command, check=False, stdin=subprocess.DEVNULL).returncode
