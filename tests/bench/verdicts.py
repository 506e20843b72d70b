"""How long the verdict on a model takes: `check-model` in a process of its own with nothing kept, as the first plan of
a model has it on its head, for each family that tests/train/proven_families.py knows.

make bench PARTS=verdicts
python -m tests.bench.verdicts --repeats 1
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

from tests.bench.page import Figures, bench
from tests.bench.pretrain import PYTHON
from tests.support.cluster import REPOSITORY

NAME = "verdicts"
AIM_S = 20
LIST = """
import json
from tests.train import proven_families as known
names = (*known.PACKED, *known.UNPACKED, *known.REFUSED)
print(json.dumps({name: known.config_of(name).to_dict() for name in names}, default=str))
"""


def measure(_: None) -> Figures:
    """Seconds of each family."""
    env = dict(os.environ) | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(REPOSITORY)}
    listed = subprocess.run([PYTHON, "-c", LIST], env=env, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    seconds = {}
    for name, config in json.loads(listed.stdout.splitlines()[-1]).items():
        with tempfile.TemporaryDirectory() as cache:
            since = time.monotonic()
            words = [PYTHON, "-m", "train", "check-model", "--model", "-", "--json"]
            done = subprocess.run(
                words,
                env=env | {"MOTLEY_CACHE": cache},
                cwd=REPOSITORY,
                input=json.dumps(config),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode not in (0, 1):
                raise SystemExit(f"{name}: {done.stderr[-300:]}")
            seconds[name] = round(time.monotonic() - since, 1)
    return {"seconds": seconds}


def table(found: dict[str, list[Figures]]) -> list[str]:
    """The slowest by name; a figure of several repeats is their median."""
    runs = [run["seconds"] for run in found["families"]]
    each = {name: statistics.median(run[name] for run in runs if name in run) for name in runs[-1]}
    slowest = sorted(each, key=lambda name: each[name], reverse=True)[:5]
    late = sum(seconds > AIM_S for seconds in each.values())
    lines = [f"| the verdict on | s, new process, aim {AIM_S} |", "| --- | --- |"]
    lines.append(f"| {len(each)} families, median | {statistics.median(each.values()):.1f} |")
    lines += [f"| {name} | {each[name]:.1f} |" for name in slowest]
    return [*lines, f"| over {AIM_S} s | {late} |"]


PARTS = {"families": measure}


def main() -> int:
    return bench(__doc__, NAME, contextlib.nullcontext(), PARTS, table)


if __name__ == "__main__":
    sys.exit(main())
